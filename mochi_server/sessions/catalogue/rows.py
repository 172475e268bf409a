"""What a list of sessions shows of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from ...errors import JSONObject, MochiError
from ..codec import NotASession, disassemble, encode, is_user, open_prefix
from ..migration import NotMetadata, read_metadata
from ..session import ChatSession, preview_of
from ..storage.base import Entry
from ..types import SessionMetadata, microseconds
from .cursors import foreign_cursor, read_cursor, write_cursor

Key = tuple[int, str]
"""Where a session stands in the list: minus the microseconds of ``updated_at``, then the id."""


@dataclass(slots=True)
class SessionList:
    """A list, or one page of it."""

    entries: list[JSONObject] = field(default_factory=list)
    """``session_id, model, created_at, updated_at, message_count, summary, preview, title, tags,
    pinned, archived``, the one changed last first."""
    problems: list[JSONObject] = field(default_factory=list)
    """``{"session_id", "reason"}`` of what looks like a session and cannot be read."""
    next_cursor: str | None = None
    """Where the next page begins; null on the last one."""


class Row(NamedTuple):
    """One session in the index: a line of the list, or a problem."""

    signature: tuple[int, ...]
    key: Key
    encoded: bytes
    is_problem: bool = False
    tags: tuple[str, ...] = ()
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a list shows; problems are always shown."""

    archived: bool | None = None
    """Only what is put away, or only what is not; None: both."""
    tags: tuple[str, ...] = ()
    """A session must have all of these."""

    def matches(self, row: Row) -> bool:
        """Whether the row belongs into the list."""
        if self.archived is not None and row.archived is not self.archived:
            return False
        return all(tag in row.tags for tag in self.tags)


ALL = SessionFilter()


def row_of_session(session: ChatSession, signature: tuple[int, ...]) -> Row:
    """The row of a session that is in hand."""
    at = microseconds(session.metadata.updated_at, otherwise=0)
    return _row(session.metadata, signature, at, session.preview)


def row_of_problem(entry: Entry, reason: str) -> Row:
    """The row of what cannot be read."""
    line = encode({"session_id": entry.session_id, "reason": reason})
    return Row(entry.signature, (-entry.modified, entry.session_id), line, is_problem=True)


def row_of_error(entry: Entry, error: MochiError) -> Row:
    """The row of what the storage could not read; it is tried again at the next look."""
    return row_of_problem(entry._replace(signature=()), error.message)


def row_of_prefix(entry: Entry, prefix: bytes, asked: int) -> Row | None:
    """The row from the beginning of a file of which ``asked`` bytes were asked for.

    None when more of the file is needed.
    """
    if len(prefix) < asked:
        return row_of_file(entry, prefix)
    opening = open_prefix(prefix)
    if opening is None:
        return None
    return _row_of(entry, opening.head, opening.first_user)


def row_of_file(entry: Entry, data: bytes) -> Row:
    """The row from the whole file, of any layout."""
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
        signature,
        (-at, metadata.session_id),
        encode(shown),
        tags=tuple(labels["tags"]),
        archived=labels["archived"],
    )


def cursor_behind(key: Key) -> str:
    """The cursor of the page that begins behind this row."""
    return write_cursor(f"{key[0]}:{key[1]}")


def key_of(cursor: str) -> Key:
    """The row behind which the cursor's page begins.

    Raises:
        InvalidRequest: it is none of ours.
    """
    number, _, session_id = read_cursor(cursor).partition(":")
    try:
        return int(number), session_id
    except ValueError as error:
        raise foreign_cursor() from error
