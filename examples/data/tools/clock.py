"""Dates and times, with time zones."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo


def current_time(zone: str | None = None) -> str:
    """Tell the current date, weekday and time.

    Args:
        zone: A time zone such as "Europe/Berlin" or "UTC"; without one, that of this machine.
    """
    now = datetime.now(_zone(zone)) if zone else datetime.now().astimezone()
    return _told(now)


def convert_time(time: str, from_zone: str, to_zone: str) -> str:
    """Tell what a clock in another time zone shows at a given time.

    Args:
        time: Date and time as YYYY-MM-DD HH:MM.
        from_zone: The time zone of that time, such as "America/New_York".
        to_zone: The time zone to convert to.
    """
    try:
        given = datetime.fromisoformat(time.strip())
    except ValueError:
        raise ValueError(f"{time!r} is not a time such as 2026-03-01 14:30.") from None
    return _told(given.replace(tzinfo=_zone(from_zone)).astimezone(_zone(to_zone)))


def days_between(start: str, end: str) -> str:
    """Count the days from one date to another; negative when the second is earlier.

    Args:
        start: A date as YYYY-MM-DD.
        end: A date as YYYY-MM-DD.
    """
    return str((_date(end) - _date(start)).days)


def add_to_date(start: str, amount: int, unit: Literal["days", "weeks"] = "days") -> str:
    """Tell the date and weekday that is some days or weeks after a date.

    Args:
        start: A date as YYYY-MM-DD.
        amount: How many to add; negative for before.
        unit: What to add.
    """
    try:
        found = _date(start) + timedelta(**{unit: amount})
    except OverflowError:
        raise ValueError("That date is too far away.") from None
    return f"{found.isoformat()}, {found:%A}"


def _told(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}, {moment:%A}, {moment.tzname()} (UTC{moment:%z})"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"There is no time zone named {name!r}; use one such as Europe/Berlin."
        ) from None


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a date such as 2026-03-01.") from None
