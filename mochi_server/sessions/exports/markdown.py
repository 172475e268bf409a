"""A session as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ...errors import JSONObject
from ...protocol.messages import AssistantMessage, Message, ToolMessage
from ..attachments import attachments_of
from ..session import ChatSession

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
"""A line that opens or closes a block of code."""


def as_markdown(session: ChatSession) -> str:
    parts = [*_head(session)]
    for message in session.messages:
        parts += _message_parts(message)
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(session: ChatSession) -> Iterator[str]:
    metadata = session.metadata
    yield f"# {one_line(metadata.title or session.preview or session.session_id)}"
    facts = {
        "Session": f"`{session.session_id}`",
        "Model": metadata.model,
        "Created": metadata.created_at,
        "Changed": metadata.updated_at,
        "Messages": str(metadata.message_count),
        "Tags": ", ".join(metadata.tags),
    }
    yield "\n".join(f"- {name}: {one_line(value)}" for name, value in facts.items() if value)
    if metadata.summary is not None:
        yield metadata.summary.summary


def _message_parts(message: Message) -> Iterator[str]:
    if isinstance(message, AssistantMessage):
        yield f"## Assistant{f' ({one_line(message.model)})' if message.model else ''}"
        if message.thinking:
            yield "\n".join(f"> {line}" for line in message.thinking.splitlines())
        yield closed(message.text)
        yield from map(_call, message.tool_calls or [])
        if message.interrupted:
            yield "*The reply was cut off.*"
    elif isinstance(message, ToolMessage):
        yield f"## Tool `{one_line(message.tool_name or 'unknown')}`"
        yield fenced(message.text)
    else:
        yield f"## {one_line(message.role).capitalize()}"
        yield closed(message.text)
    yield "\n".join(map(_attachment, attachments_of(message.as_stored())))


def _attachment(entry: JSONObject) -> str:
    name, kind = (one_line(str(entry.get(key) or "")) for key in ("name", "media_type"))
    return f"- Attachment: {name or 'without a name'} ({kind}, {entry.get('size')} bytes)"


def _call(call: JSONObject) -> str:
    name, arguments = name_and_arguments(call)
    return f"Calls `{name}`:\n\n{fenced(arguments, 'json')}"


def name_and_arguments(call: JSONObject) -> tuple[str, str]:
    """Return the name of a stored call's tool, and its arguments as text."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = json.dumps(function.get("arguments"), indent=2, ensure_ascii=False)
    return one_line(str(function.get("name"))), arguments


def fenced(text: str, language: str = "") -> str:
    """Return the text in a code fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def closed(text: str) -> str:
    """Return the text with its last code fence closed, if it is open."""
    fence = ""
    for line in text.splitlines():
        if (fence_line := FENCE.fullmatch(line)) is None:
            continue
        mark, rest = fence_line.groups()
        if not fence:
            fence = mark if mark[0] == "~" or "`" not in rest else ""
        elif mark.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def one_line(text: str) -> str:
    return " ".join(text.split())
