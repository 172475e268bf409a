"""The rows of the catalogue, and the cursors of its pages."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from ...errors import InvalidRequest, JSONObject, MochiError
from ..codec import NotASession, disassemble, encode, is_user, open_prefix
from ..session import ChatSession, preview_of
from ..storage.base import Entry
from ..types import NotMetadata, SessionMetadata, microseconds, read_metadata

Position = tuple[int, str]
"""Where a session stands in the list: minus the microseconds of ``updated_at``, then the id."""

LARGEST = 2**63 - 2
"""About the largest integer of SQLite."""


@dataclass(slots=True)
class SessionPage:
    """The list of sessions, or a page of it."""

    entries: list[JSONObject] = field(default_factory=list)
    """``session_id, model, created_at, updated_at, message_count, summary, preview, title, tags,
    pinned, archived``, the one changed last first."""
    problems: list[JSONObject] = field(default_factory=list)
    """``{"session_id", "reason"}`` of files that cannot be read."""
    next_cursor: str | None = None
    """Where the next page begins; None on the last one."""


class Row(NamedTuple):
    """A session in the catalogue: a line of the list, or a problem."""

    session_id: str
    version: str
    """Of the content that the row was made of; empty when it must be read again."""
    position: int
    """Minus the microseconds of ``updated_at``: the list is sorted by it."""
    line: bytes
    """The line of the list as JSON."""
    is_problem: bool = False
    tags: tuple[str, ...] = ()
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a list shows; problems are always shown."""

    archived: bool | None = None
    """Only archived sessions, or only the others; None: both."""
    tags: tuple[str, ...] = ()
    """A session must have all of these."""


ALL = SessionFilter()


def version_text(signature: tuple[int, ...]) -> str:
    """Return a storage's signature as the catalogue keeps it; empty for none."""
    return ".".join(map(str, signature))


def row_of_session(session: ChatSession, signature: tuple[int, ...]) -> Row:
    """Make the row of a session in memory."""
    at = microseconds(session.metadata.updated_at, otherwise=0)
    return _row(session.metadata, signature, at, session.preview)


def row_of_problem(entry: Entry, reason: str) -> Row:
    """Make the row of what cannot be read."""
    line = encode({"session_id": entry.session_id, "reason": reason})
    version = version_text(entry.signature)
    return Row(entry.session_id, version, -entry.modified, line, is_problem=True)


def row_of_error(entry: Entry, error: MochiError) -> Row:
    """Make the row of what the storage could not read, which is tried again at the next check."""
    return row_of_problem(entry._replace(signature=()), error.message)


def row_of_prefix(entry: Entry, prefix: bytes, size: int) -> Row | None:
    """Make the row from the first ``size`` bytes of a file; None when more of it is needed."""
    if len(prefix) < size:
        return row_of_file(entry, prefix)
    opening = open_prefix(prefix)
    if opening is None:
        return None
    return _row_of(entry, opening.head, opening.first_user)


def row_of_file(entry: Entry, data: bytes) -> Row:
    """Make the row from the whole file, of any layout."""
    try:
        document = disassemble(data)
    except NotASession as error:
        return row_of_problem(entry, str(error))
    messages = (orjson.loads(line) for line in document.lines)
    first = next((message for message in messages if is_user(message)), None)
    head = orjson.loads(document.head)
    return _row_of(entry, {**head, "message_count": len(document.lines)}, first)


def _row_of(entry: Entry, head: JSONObject, first_user: JSONObject | None) -> Row:
    try:
        metadata = read_metadata(head, entry.session_id)
    except NotMetadata as error:
        return row_of_problem(entry, str(error))
    at = microseconds(metadata.updated_at, otherwise=entry.modified)
    return _row(metadata, entry.signature, at, preview_of(first_user))


def _row(metadata: SessionMetadata, signature: tuple[int, ...], at: int, preview: str) -> Row:
    summary, labels = metadata.summary, metadata.labels
    shown = {
        "session_id": metadata.session_id,
        "model": metadata.model,
        "created_at": metadata.created_at,
        "updated_at": metadata.updated_at,
        "message_count": metadata.message_count,
        "summary": None if summary is None else summary.model_dump(mode="json"),
        "preview": preview,
        **labels,
    }
    return Row(
        metadata.session_id,
        version_text(signature),
        -at,
        encode(shown),
        tags=tuple(labels["tags"]),
        archived=labels["archived"],
    )


# Cursors: positions in a list as opaque texts for clients


def write_cursor(place: str) -> str:
    """Return the opaque text of a place."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the place that was written; the caller checks that it is one of its own list.

    Raises:
        InvalidRequest: it is no cursor.
    """
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError as error:
        raise foreign_cursor() from error


def foreign_cursor() -> InvalidRequest:
    """Return the error for a cursor of another list, or for no cursor at all."""
    return InvalidRequest("The cursor is not one of this list.")


def cursor_after(position: Position) -> str:
    """Return the cursor of the page that begins behind this session."""
    return write_cursor(f"{position[0]}:{position[1]}")


def position_of(cursor: str) -> Position:
    """Return the position behind which the cursor's page begins.

    Raises:
        InvalidRequest: it is no cursor of a list of sessions.
    """
    number, _, session_id = read_cursor(cursor).partition(":")
    try:
        return max(-LARGEST, min(int(number), LARGEST)), session_id
    except ValueError as error:
        raise foreign_cursor() from error
