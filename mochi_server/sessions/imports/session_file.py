"""Session files of mochi-server, made sessions of this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from ...core.caller import current_caller
from ...core.ids import new_session_id
from ...core.space import room_of
from ...errors import CannotImport, SessionExists, SessionNotFound
from ..codec import Document, NotASession, assemble, disassemble, encode
from ..manager import SessionManager
from ..rules import without_allowing
from ..storage.base import SESSION_ID
from ..types import OWNER, SESSION_RULES, TOOL_POLICIES, SessionMetadata, ToolExecutionPolicy
from ..versions import LEGACY_FLAG, NotMetadata, read_metadata, version_of
from .report import ImportedSession, Outcome

ALWAYS = ToolExecutionPolicy.ALWAYS_CONFIRM.value


async def import_session_file(
    sessions: SessionManager,
    content: bytes,
    *,
    new_id: bool = False,
    check_model: Callable[[str], Awaitable[None]] | None = None,
) -> ImportedSession:
    """Store a session file as a session, in its own version; nothing is ever overwritten.

    It keeps its id if that is free. Only its policies for tools become ``always_confirm``: the
    author of the file must not decide which calls need no confirmation here. What is stored
    already just so stays. ``check_model`` raises an error if no session with this model may be
    made.

    Raises:
        CannotImport: It is no session file.
        SessionExists: Its id is taken by another session.
        SpaceUsedUp: The caller has no room for it.
        StorageError: It could not be written.
    """
    document, head, metadata = _parse(content)
    if check_model is not None:
        await check_model(metadata.model)
    changed = _ask_always(head)
    if _set_owner(head) or changed:
        document = Document(encode(head), document.lines, document.rest)
        content = b"".join(assemble(document))
    await sessions.take_space(room_of(len(content)))
    own_id = None if new_id else metadata.session_id
    session_id, outcome = await _store(sessions, document, content, own_id)
    if outcome == "created":
        sessions.catalogue.invalidate()
    return ImportedSession(
        session_id=session_id,
        message_count=len(document.lines),
        outcome=outcome,
        version=version_of(head),
        policies_changed=changed,
    )


def _parse(content: bytes) -> tuple[Document, dict[str, Any], SessionMetadata]:
    """Return a file, its first part as it stands there, and that as this version has it.

    Raises:
        CannotImport: It is no session file.
    """
    try:
        document = disassemble(content)
        head = orjson.loads(document.head)
        return document, head, read_metadata(head, str(head.get("session_id") or ""))
    except (NotASession, NotMetadata) as error:
        raise CannotImport(str(error)) from error


def _set_owner(head: dict[str, Any]) -> bool:
    """Let the session belong to the caller, and return whether that changes it.

    One who sees all sessions keeps the owner that the file names.
    """
    owner = current_caller().owner
    if owner is None or head.get(OWNER) == owner:
        return False
    head[OWNER] = owner
    return True


async def _is_seen(sessions: SessionManager, session_id: str) -> bool:
    try:
        await sessions.check_exists(session_id)
    except SessionNotFound:
        return False
    return True


def _ask_always(head: dict[str, Any]) -> bool:
    """Set every policy to ``always_confirm``, and return whether one was different.

    Agents of the session follow its policy, so it holds for their tools as well. Rules that allow
    calls go.
    """
    changed = _drop_allowing_rules(head)
    settings = head.get("tool_settings")
    if not isinstance(settings, dict):
        return changed
    before = orjson.dumps(settings)
    if settings.get("execution_policy") is not None:
        settings["execution_policy"] = ALWAYS
    if settings.get(LEGACY_FLAG) is not None:
        settings[LEGACY_FLAG] = True
    policies = settings.get(TOOL_POLICIES)
    if isinstance(policies, dict):  # what is none asks anyway
        settings[TOOL_POLICIES] = dict.fromkeys(policies, ALWAYS)
    return changed or orjson.dumps(settings) != before


def _drop_allowing_rules(head: dict[str, Any]) -> bool:
    """Drop the rules that allow calls, and return whether any was there."""
    rules = head.get(SESSION_RULES)
    if rules is None:
        return False
    head[SESSION_RULES] = kept = without_allowing(rules)
    return bool(kept != rules)


async def _store(
    sessions: SessionManager, document: Document, content: bytes, own_id: str | None
) -> tuple[str, Outcome]:
    """Store a file under its own id, or under a new one; return the id, and what was done."""
    if own_id is not None and SESSION_ID.fullmatch(own_id):
        outcome = await _create_with_id(sessions, own_id, content)
        if outcome is not None:
            return own_id, outcome
    return await _create(sessions, document), "created"


async def _create_with_id(
    sessions: SessionManager, session_id: str, content: bytes
) -> Outcome | None:
    """Store a file under its id; None if that is the id of a session that the caller cannot see.

    Raises:
        SessionExists: The id is taken by another session.
    """
    try:
        await sessions.storage.create(session_id, [content])
    except SessionExists:
        stored, _ = await sessions.storage.read(session_id)
        if stored == content:
            return "unchanged"
        if await _is_seen(sessions, session_id):
            raise
        return None
    return "created"


async def _create(sessions: SessionManager, document: Document) -> str:
    """Store the document under a new id, which is set in its metadata; return the id."""
    head = orjson.loads(document.head)
    while True:
        head["session_id"] = session_id = new_session_id()
        renamed = Document(encode(head), document.lines, document.rest)
        try:
            await sessions.storage.create(session_id, assemble(renamed))
        except SessionExists:
            continue
        return session_id
