"""Export and import sessions: as session files, Markdown, or lines of chat messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
from pydantic import ValidationError

from ..core.ids import new_session_id
from ..errors import JSONObject, SessionExists
from ..protocol.messages import (
    MESSAGE,
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UnknownMessage,
    UserMessage,
    now,
)
from .codec import Document, NotASession, assemble, disassemble, encode, is_bottomless
from .manager import SessionManager
from .session import ChatSession
from .storage.base import SESSION_ID
from .types import (
    LEGACY_FLAG,
    SESSION_RULES,
    TOOL_POLICIES,
    ContextWindowConfig,
    NotMetadata,
    SessionMetadata,
    ToolExecutionPolicy,
    read_metadata,
    version_of,
)

ALWAYS = ToolExecutionPolicy.ALWAYS_CONFIRM.value
SENT = ("role", "content", "tool_calls", "tool_name", "tool_call_id")

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class ExportFormat(str, Enum):
    """The format of an exported session."""

    JSON = "json"
    """The session file itself, byte for byte."""
    MARKDOWN = "markdown"
    JSONL = "jsonl"
    """A line ``{"role", "content"}`` for each message that a model would get."""

    @property
    def suffix(self) -> str:
        return ".md" if self is ExportFormat.MARKDOWN else f".{self.value}"


async def export_session(
    sessions: SessionManager, session_id: str, to: ExportFormat = ExportFormat.JSON
) -> bytes:
    """Return the stored session in this format."""
    session = await sessions.get(session_id)
    if to is ExportFormat.MARKDOWN:
        return as_markdown(session).encode("utf-8", "replace")
    if to is ExportFormat.JSONL:
        return b"".join(line + b"\n" for line in as_lines(session))
    content, _ = await sessions.storage.read(session_id)
    return content


def as_lines(session: ChatSession) -> Iterator[bytes]:
    for message in session.messages:
        if isinstance(message, UserMessage | SystemMessage | AssistantMessage | ToolMessage):
            yield encode(_sent(message))


def _sent(message: Message) -> JSONObject:
    stored = message.as_stored()
    line = {key: stored[key] for key in SENT if stored.get(key) is not None}
    return {"role": message.role, "content": message.text, **line}


def as_markdown(session: ChatSession) -> str:
    parts = [*_head(session)]
    for message in session.messages:
        parts += _message_parts(message)
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(session: ChatSession) -> Iterator[str]:
    metadata = session.metadata
    yield f"# {_one_line(metadata.title or session.preview or session.session_id)}"
    facts = {
        "Session": f"`{session.session_id}`",
        "Model": metadata.model,
        "Created": metadata.created_at,
        "Changed": metadata.updated_at,
        "Messages": str(metadata.message_count),
        "Tags": ", ".join(metadata.tags),
    }
    yield "\n".join(f"- {name}: {_one_line(value)}" for name, value in facts.items() if value)
    if metadata.summary is not None:
        yield metadata.summary.summary


def _message_parts(message: Message) -> Iterator[str]:
    if isinstance(message, AssistantMessage):
        yield f"## Assistant{f' ({_one_line(message.model)})' if message.model else ''}"
        if message.thinking:
            yield "\n".join(f"> {line}" for line in message.thinking.splitlines())
        yield closed(message.text)
        yield from map(_call, message.tool_calls or [])
        if message.interrupted:
            yield "*The reply was cut off.*"
    elif isinstance(message, ToolMessage):
        yield f"## Tool `{_one_line(message.tool_name or 'unknown')}`"
        yield fenced(message.text)
    else:
        yield f"## {_one_line(message.role).capitalize()}"
        yield closed(message.text)


def _call(call: JSONObject) -> str:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = json.dumps(function.get("arguments"), indent=2, ensure_ascii=False)
    return f"Calls `{_one_line(str(function.get('name')))}`:\n\n{fenced(arguments, 'json')}"


def fenced(text: str, language: str = "") -> str:
    """Return the text in a code fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def closed(text: str) -> str:
    """Return the text with its last code fence closed, if it is open."""
    fence = ""
    for line in text.splitlines():
        if (fence_line := _FENCE.fullmatch(line)) is None:
            continue
        mark, rest = fence_line.groups()
        if not fence:
            fence = mark if mark[0] == "~" or "`" not in rest else ""
        elif mark.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Import


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
    """Keep only rules that ask or deny, and return whether any other one was there."""
    rules = head.get(SESSION_RULES)
    if rules is None:
        return False
    kept = [
        rule
        for rule in (rules if isinstance(rules, list) else [])
        if isinstance(rule, dict) and rule.get("action") in {"ask", "deny"}
    ]
    head[SESSION_RULES] = kept
    return bool(kept != rules)


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
            messages.append(_message_of(line, number, first=not messages))
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


def _message_of(line: bytes, number: int, *, first: bool) -> Message:
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
