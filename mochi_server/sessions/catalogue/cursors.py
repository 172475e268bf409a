"""Places in a list, as texts that clients hand back and do not look into."""

from __future__ import annotations

import base64

from ...errors import InvalidRequest


def write_cursor(place: str) -> str:
    """The opaque text."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """What was written; whether it is a place of the list at hand, who asks must see.

    Raises:
        InvalidRequest: nothing was.
    """
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError as error:
        raise foreign_cursor() from error


def foreign_cursor() -> InvalidRequest:
    """The error for a cursor of another list, or of nobody."""
    return InvalidRequest("The cursor is not one of this list.")
