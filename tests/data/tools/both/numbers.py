"""Numbers; the hints are text."""

from __future__ import annotations

from ._words import say


def add(a: float, b: float) -> str:
    """Add two numbers together.

    Args:
        a: The first number to add.
        b: The second number to add.
    """
    return say(a + b)


def divide(a: float, b: float = 2.0) -> str:
    """Divide a number.

    Parameters
    ----------
    a : float
        What is divided.
    b : float, optional
        By what.
    """
    from .lazy import quotient  # noqa: PLC0415 - at the time of the call

    return say(quotient(a, b))
