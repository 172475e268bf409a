"""The time of day, and moments as texts."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Clock:
    """The time of day, and seconds of a clock that does not jump with it."""

    def __call__(self) -> datetime:
        return utc_now()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = Clock()


def timestamp(moment: datetime) -> str:
    """Return a moment as stored: UTC, microseconds, ``Z``; such texts sort by time."""
    text = moment.astimezone(timezone.utc).isoformat(timespec="microseconds")
    return f"{text.removesuffix('+00:00')}Z"


def moment_of(timestamp: str) -> datetime:
    """Return the moment that ``timestamp`` has written.

    Raises:
        ValueError: this is none.
    """
    moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))  # Z: from Python 3.11 on
    if moment.tzinfo is None:
        raise ValueError(f"{timestamp!r} has no time zone.")
    return moment
