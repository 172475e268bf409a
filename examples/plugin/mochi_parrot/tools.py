"""Tools: all functions in ``__all__``."""

__all__ = ["say_backwards"]


def say_backwards(text: str) -> str:
    """Say a text backwards.

    Args:
        text: What to say.
    """
    return text[::-1]
