"""Import a session: a session file of any version, or lines of chat messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from ...core.ids import new_session_id
from ...errors import SessionExists
from ...protocol.messages import (
    MESSAGE,
    AssistantMessage,
    Message,
    SystemMessage,
    UnknownMessage,
    now,
)
from ..codec import Document, NotASession, assemble, disassemble, encode, is_bottomless
from ..manager import SessionManager
from ..migration import LEGACY_FLAG, NotMetadata, read_metadata, version_of
from ..session import ChatSession
from ..storage.base import SESSION_ID
from ..types import TOOL_POLICIES, ContextWindowConfig, SessionMetadata, ToolExecutionPolicy

ALWAYS = ToolExecutionPolicy.ALWAYS_CONFIRM.value


class CannotImport(ValueError):
    """The content cannot be imported; the text says why."""


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported session."""

    session_id: str
    version: str | None
    """Of the file's format; None for lines of messages."""
    message_count: int
    policies_changed: bool = False
    """Whether the file had policies that do not ask about every tool call; the session has not."""


async def import_session(
    sessions: SessionManager,
    content: bytes,
    *,
    model: str | None = None,
    new_id: bool = False,
) -> Imported:
    """Store the content as a new session; nothing is ever overwritten.

    A session file is stored as it is, in its own version: the first change brings it into the
    present shape, as with every old file. It keeps its id if that is free. Only its policies for
    tools become ``always_confirm``: the author of the file must not
    decide which calls need no confirmation here.

    Args:
        sessions: where to.
        content: a session file, or JSON Lines ``{"role", "content", …}``.
        model: of lines of messages that name none.
        new_id: give it another id than the one in the file.

    Raises:
        CannotImport: it is neither.
        SessionExists: its id is taken.
        StorageError: it could not be written.
    """
    if _is_session_file(content):
        return await _import_file(sessions, content, new_id=new_id)
    session = session_of_lines(content, model)
    session_id = await _create(sessions, session.document())
    return Imported(session_id, None, len(session.messages))


def _is_session_file(content: bytes) -> bool:
    """Return whether the content is one JSON value, and not a message."""
    try:
        value = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return False
    return not (isinstance(value, dict) and "role" in value and "metadata" not in value)


async def _import_file(sessions: SessionManager, content: bytes, *, new_id: bool) -> Imported:
    try:
        document = disassemble(content)
        head = orjson.loads(document.head)
        metadata = read_metadata(head, str(head.get("session_id") or ""))
    except (NotASession, NotMetadata) as error:
        raise CannotImport(str(error)) from error
    session_id, parts = metadata.session_id, [content]
    if changed := _ask_always(head):
        document = Document(encode(head), document.lines, document.rest)
        parts = [*assemble(document)]
    if not new_id and SESSION_ID.fullmatch(session_id):
        await sessions.storage.create(session_id, parts)
    else:
        session_id = await _create(sessions, document)
    return Imported(session_id, version_of(head), len(document.lines), changed)


def _ask_always(head: dict[str, Any]) -> bool:
    """Set every policy to ``always_confirm``, and return whether one was different.

    Agents of the session follow its policy, so it holds for their tools as well.
    """
    settings = head.get("tool_settings")
    if not isinstance(settings, dict):
        return False
    before = orjson.dumps(settings)
    if settings.get("execution_policy") is not None:
        settings["execution_policy"] = ALWAYS
    if settings.get(LEGACY_FLAG) is not None:
        settings[LEGACY_FLAG] = True
    policies = settings.get(TOOL_POLICIES)
    if isinstance(policies, dict):  # what is none asks anyway
        settings[TOOL_POLICIES] = dict.fromkeys(policies, ALWAYS)
    return orjson.dumps(settings) != before


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


def session_of_lines(content: bytes, model: str | None = None) -> ChatSession:
    """Make a session in memory from messages, one JSON object a line.

    Raises:
        CannotImport: a line is no message, or nothing names a model.
    """
    messages: list[Message] = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            messages.append(_message(line, number, first=not messages))
    if not messages:
        raise CannotImport("there is no message in it")
    named = (each.model for each in messages if isinstance(each, AssistantMessage))
    model = model or next(filter(None, named), None)
    if model is None:
        raise CannotImport("it names no model: say which one (--model)")
    time = now()
    metadata = SessionMetadata(
        session_id="",
        model=model,
        created_at=time,
        updated_at=time,
        context_window_config=ContextWindowConfig(),
    )
    session = ChatSession(metadata)
    session.append(*messages)
    return session


def _message(line: bytes, number: int, *, first: bool) -> Message:
    """Parse the message of one line; add an id and a time if it has none."""
    try:
        value: Any = orjson.loads(line)
        if is_bottomless(line):
            raise CannotImport(f"line {number}: nested too deeply")
        message = MESSAGE.validate_python(value)
    except orjson.JSONDecodeError as error:
        raise CannotImport(f"line {number}: not valid JSON ({error})") from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"][1:])) or "message"
        raise CannotImport(f"line {number}: {where}: {problem['msg']}") from error
    if isinstance(message, UnknownMessage) or "content" not in value:
        raise CannotImport(f"line {number}: no message with a known role and content")
    if isinstance(message, SystemMessage) and not first:
        raise CannotImport(f"line {number}: a system message must be the first one")
    return message
