"""Objects of exports, whose values may have forms that nobody expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from ...core.clock import timestamp
from ...errors import JSONObject
from ..versions import instant

LeftOut = Counter[str]
"""What was not taken, in words in the singular, and how often."""

MILLISECONDS: Final = 10**11
"""A number from here on is a time in milliseconds, not in seconds."""

_FLAGS: Final = (False, True)
"""Which 0 and 1 equal."""


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of an export; a value in a form that is not expected is counted, and missing."""

    values: dict[str, Any]
    left_out: LeftOut = field(default_factory=Counter)
    """What was not taken of the conversation."""

    def leave_out(self, what: str, kind: str) -> None:
        """Count what is not taken, such as a ``message of the role`` ``critic``."""
        self.left_out[f"{what} {kind[:40] or 'unknown'}"] += 1

    def _leave_out(self, key: str) -> None:
        self.left_out[f"{key} in an unknown form"] += 1

    def _text(self, key: str) -> str | None:
        """Return a text, or a number as one; None for all else, which is counted."""
        value = self.values.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if value is not None:
            self._leave_out(key)
        return None

    def text(self, *keys: str) -> str:
        """Return the first of these that is a text and not empty; "" if there is none."""
        return next(filter(None, map(self._text, keys)), "")

    def flag(self, key: str) -> bool:
        """Return whether it is set."""
        value = self.values.get(key)
        if value is not None and value not in _FLAGS:
            self._leave_out(key)
        return value == True  # noqa: E712 - SQLite has 1

    def object(self, key: str) -> Fields:
        """Return an object; an empty one if it is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self._leave_out(key)
        return Fields(as_object(value), self.left_out)

    def items(self) -> Iterator[tuple[str, Fields]]:
        for key, value in self.values.items():
            if isinstance(value, dict):
                yield key, Fields(value, self.left_out)
            else:
                self._leave_out("message")

    def list(self, key: str) -> list[Any]:
        """Return a list; an empty one if it is missing or null."""
        value = self.values.get(key)
        if isinstance(value, list):
            return value
        if value is not None:
            self._leave_out(key)
        return []

    def objects(self, key: str) -> Iterator[Fields]:
        for value in self.list(key):
            if isinstance(value, dict):
                yield Fields(value, self.left_out)
            else:
                self._leave_out(key)

    def texts(self, key: str) -> Iterator[str]:
        """Yield the texts of a list."""
        for value in self.list(key):
            if isinstance(value, str):
                yield value
            else:
                self._leave_out(key)

    def time(self, *keys: str) -> str | None:
        """Return the first of these that is a time, as it is stored."""
        for key in keys:
            value = self.values.get(key)
            if (time := time_of(value)) is not None:
                return time
            if value:
                self._leave_out(key)
        return None


def time_of(value: object) -> str | None:
    """Return a time as it is stored; None if it is none.

    Args:
        value: Seconds or milliseconds since 1970, or a text as ISO 8601 has it, or either of them
            in the extended JSON of MongoDB.
    """
    if isinstance(value, dict):
        value = value.get("$date", value.get("$numberLong"))
        return time_of(int(value) if isinstance(value, str) and value.isdecimal() else value)
    try:
        if isinstance(value, str):
            moment = instant(value)
        elif isinstance(value, int | float) and value > 0:
            seconds = value / 1000 if value >= MILLISECONDS else value
            moment = datetime.fromtimestamp(seconds, timezone.utc)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return timestamp(moment)


def as_object(value: object) -> JSONObject:
    return value if isinstance(value, dict) else {}
