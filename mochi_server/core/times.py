"""Times that other programs write."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from pydantic import TypeAdapter, ValidationError

_TIME: Final = TypeAdapter(datetime)


def read_time(value: object) -> datetime | None:
    """Return a time that is seconds since 1970, or ISO 8601; None if it is neither, or 0.

    Ollama writes nanoseconds, which Python's own parser refuses.
    """
    if not value:
        return None
    try:
        time = _TIME.validate_python(value)
    except ValidationError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
