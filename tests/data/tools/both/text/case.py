"""Upper and lower case."""


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
