"""A sub-folder that names its group."""

from datetime import date

__all__ = ["weekday"]
__group__ = "time"
__destructive__: list[str] = []


def weekday(day: date) -> str:
    """Name the day of the week."""
    return day.strftime("%A")
