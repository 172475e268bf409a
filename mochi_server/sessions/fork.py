"""Forks: sessions that begin as another one did, up to one of its messages."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from ..core.aio import in_thread, run_to_completion
from ..errors import JSONObject, MessageNotFound, StorageError
from .attachments import AttachmentStore
from .manager import SessionManager
from .rules import without_allowing
from .session import ChatSession
from .types import FLAGS, FORKED_FROM, IMPORTED_FROM, RUN, SESSION_RULES, SessionMetadata

NOT_COPIED = frozenset({RUN, IMPORTED_FROM, SESSION_RULES, *FLAGS})
"""Keys of the metadata that a fork does not have of its session, or not as they are there."""


async def fork_session(
    sessions: SessionManager,
    attachments: AttachmentStore,
    session_id: str,
    message_id: str | None = None,
) -> ChatSession:
    """Store a new session with the messages of another one up to one of them, and return it.

    It has the settings, the title and the tags of the other one, its rules that ask about calls or
    deny them, and the attachments of its messages; no summary for the list of sessions, none of old
    messages that it does not have all, and no files of a workspace. After a reply that calls tools
    come the results of its calls. A cancellation takes effect when it is stored. ``message_id``:
    the last message; None: all that are stored.

    Raises:
        MessageNotFound: The session has no such message.
        SessionNotFound, SessionUnreadable, StorageError.
    """
    source = await sessions.get(session_id)
    lines, last = await in_thread(lines_until, source, message_id)

    def prepare(fork: ChatSession) -> None:
        _copy_metadata(source.metadata, fork.metadata)
        fork.metadata.set_optional(FORKED_FROM, {"session_id": session_id, "message_id": last})
        fork.extend(lines)
        fork.forget_summary_from(len(lines))

    async def store() -> ChatSession:
        fork = await sessions.create(source.metadata.model, prepare=prepare)
        try:
            named = {str(each["attachment_id"]) for each in fork.attachments()}
            await attachments.copy(session_id, fork.session_id, named)
        except StorageError:
            await sessions.delete(fork.session_id)
            raise
        return fork

    return await run_to_completion(store())


def _copy_metadata(source: SessionMetadata, fork: SessionMetadata) -> None:
    fork.tool_settings = source.tool_settings
    fork.agent_settings = source.agent_settings
    fork.context_window_config = source.context_window_config
    fork.summary_model = source.summary_model
    for key, value in (source.model_extra or {}).items():
        if key not in NOT_COPIED:
            fork.set_optional(key, value)
    rules = without_allowing(source.optional(SESSION_RULES))
    fork.set_optional(SESSION_RULES, None if rules == [] else rules)


def lines_until(session: ChatSession, message_id: str | None) -> tuple[Sequence[bytes], str | None]:
    """Return the messages up to one, and the id of the last; results of calls stay with them.

    Raises:
        MessageNotFound: the session has no such message.
    """
    lines = session.document().lines
    end = len(lines)
    if message_id is not None:
        for index, line in enumerate(lines):
            if _read(line).get("message_id") == message_id:
                end = index + 1
                break
        else:
            raise MessageNotFound(session_id=session.session_id, message_id=message_id)
        while end < len(lines) and _read(lines[end]).get("role") == "tool":
            end += 1
    last = _read(lines[end - 1]).get("message_id") if end else None
    return lines[:end], last if isinstance(last, str) else None


def _read(line: bytes) -> JSONObject:
    message = orjson.loads(line)
    return message if isinstance(message, dict) else {}
