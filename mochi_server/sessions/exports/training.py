"""Sessions as lines for fine-tuning, in the form of OpenAI's API."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from ...core.media import media_type_of
from ...errors import JSONObject
from ...protocol.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ..attachments import attachments_of
from ..codec import encode
from ..session import ChatSession

OTHER = "application/octet-stream"


def as_training_line(session: ChatSession, files: Mapping[str, bytes]) -> bytes:
    """Return ``{"messages": […]}`` on one line; files of the user are data URLs.

    Thinking, and messages of unknown roles, are left out.
    """
    messages: list[JsonValue] = [*_messages(session, files)]
    return encode({"messages": messages}) + b"\n"


def data_url(content: bytes, media_type: str | None) -> str:
    encoded = base64.b64encode(content).decode()
    return f"data:{media_type or OTHER};base64,{encoded}"


def _messages(session: ChatSession, files: Mapping[str, bytes]) -> Iterator[JSONObject]:
    open_calls: list[str] = []
    for number, message in enumerate(session.messages):
        match message:
            case SystemMessage():
                yield {"role": "system", "content": message.text}
            case UserMessage():
                yield {"role": "user", "content": _content(message, files)}
            case AssistantMessage():
                calls = [*_calls(message, number)]
                open_calls = [str(call["id"]) for call in calls]
                line: JSONObject = {"role": "assistant", "content": message.text}
                yield {**line, "tool_calls": [*calls]} if calls else line
            case ToolMessage():
                call_id = message.tool_call_id or (open_calls[0] if open_calls else "")
                if call_id in open_calls:
                    open_calls.remove(call_id)
                yield {"role": "tool", "content": message.text, "tool_call_id": call_id}
            case _:
                pass


def _calls(message: AssistantMessage, number: int) -> Iterator[JSONObject]:
    """Yield the calls; old files have calls without ids."""
    for index, call in enumerate(message.tool_calls or [], start=1):
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        yield {
            "id": str(call.get("id") or f"call_{number}_{index}"),
            "type": "function",
            "function": {
                "name": str(function.get("name") or ""),
                "arguments": encode(function.get("arguments") or {}).decode(),
            },
        }


def _content(message: Message, files: Mapping[str, bytes]) -> JsonValue:
    parts: list[JsonValue] = []
    for entry in attachments_of(message.as_stored()):
        content = files.get(str(entry["attachment_id"]))
        if content is not None:
            parts.append(_part(entry, content))
    if not parts:
        return message.text
    return [*parts, {"type": "text", "text": message.text}]


def _part(entry: JSONObject, content: bytes) -> JSONObject:
    kind = media_type_of(content)
    url = data_url(content, kind)
    if kind is not None and kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": str(entry.get("name") or ""), "file_data": url}}
