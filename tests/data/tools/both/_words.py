"""A private helper."""


def say(number: float) -> str:
    return f"It is {number:g}."
