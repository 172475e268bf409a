"""The times in session files, which several writers wrote in several ways."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d+))?\s*([Zz]|[+-]\d\d:?\d\d)?"
)


def instant(text: object) -> datetime:
    """The moment that a stored time means, in UTC.

    A time without zone is local time: that is how mochi-coco wrote them.

    Raises:
        ValueError: it is no ISO 8601 time.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    day, minute, second, fraction, zone = match.groups()
    micro = f"{fraction or '0':0<6.6}"
    if zone is None:
        zone = ""
    elif zone in "Zz":
        zone = "+00:00"
    elif ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{micro}{zone}")
        return moment.astimezone(timezone.utc)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a time on this machine: {text!r}") from error


def is_before(text: object, moment: datetime) -> bool:
    """Whether a stored time is earlier; no for what is no time."""
    try:
        return instant(text) < moment
    except ValueError:
        return False


def microseconds(text: object, *, otherwise: int) -> int:
    """The same as microseconds since 1970, to sort by; ``otherwise`` for what is no time."""
    try:
        moment = instant(text)
    except ValueError:
        return otherwise
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
