"""Messages as OpenAI's API has them: ``{"messages": […]}``, or one message a line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, get_args

import orjson

from ....errors import CannotImport
from ...codec import encode
from ..conversation import (
    Fields,
    Files,
    LeftOut,
    Role,
    SourceConversation,
    SourceFile,
    SourceMessage,
    as_object,
    call_of,
    file_of_data_url,
)

NAME = "chat messages"

_ROLES: Final = {
    **{role: role for role in get_args(Role)},
    "developer": "system",
    "function": "tool",
}
_KNOWN: Final = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "tool_name", "name", "model", "thinking"}
    | {"reasoning_content", "reasoning", "message_id", "timestamp", "function_call", "refusal"}
)


def recognises(value: dict[str, Any]) -> bool:
    return "messages" in value


def is_message(value: object) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


def read(source: Fields, files: Files) -> SourceConversation:  # noqa: ARG001 - they are in the messages
    conversation = SourceConversation(
        program="chat_messages",
        source_id=source.any_text("id", "conversation_id") or _digest(source.values),
        place=source.place,
        title=source.any_text("title"),
        created_at=source.time("created_at", "created"),
        model=source.any_text("model"),
    )
    if tools := source.values.get("tools"):
        count = len(tools) if isinstance(tools, list) else 1
        conversation.left_out["definition of a tool"] += count
    _add(conversation, source.objects("messages"))
    return conversation


def read_lines(messages: list[Fields]) -> SourceConversation:
    """Read messages that are a conversation, each with its own place."""
    digest = _digest([message.values for message in messages])
    conversation = SourceConversation(program="chat_messages", source_id=digest, place="")
    _add(conversation, messages)
    return conversation


def _add(conversation: SourceConversation, messages: Iterable[Fields]) -> None:
    left_out = conversation.left_out
    for number, source in enumerate(messages):
        message = _message(number, source, left_out)
        if message.role != "system":
            conversation.append(str(number), [message])
        elif conversation.nodes:
            left_out["system message that is not the first one"] += 1
        else:
            texts = (conversation.system_prompt, message.text)
            conversation.system_prompt = "\n\n".join(filter(None, texts))


def _digest(value: object) -> str:
    # Through JSON twice: what cannot be stored must not make a difference.
    encoded = orjson.dumps(orjson.loads(encode(value)), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()


def _message(number: int, source: Fields, left_out: LeftOut) -> SourceMessage:
    role = _ROLES.get(source.text("role"))
    if role is None:
        name = source.text("role")[:40]
        raise CannotImport(f"the role {name!r} is unknown", place=source.at("role"))
    if source.values.keys().isdisjoint({"content", "tool_calls", "function_call"}):
        raise CannotImport("it has no content", place=source.place)
    text, files = _content(source, left_out)
    message = SourceMessage(
        role,
        text or source.any_text("refusal"),
        model=source.any_text("model"),
        time=source.time("timestamp"),
        message_id=source.any_text("message_id"),
    )
    if role == "assistant":
        message.thinking = source.any_text("thinking", "reasoning_content", "reasoning")
        _add_calls(number, source, message)
    elif role == "tool":
        message.tool_call_id = source.any_text("tool_call_id")
        message.tool_name = source.any_text("tool_name", "name")
    if files and role in {"user", "tool"}:
        message.files = files
    elif files:
        left_out["file in a reply of a model"] += len(files)
    if unknown := source.values.keys() - _KNOWN:
        left_out["unknown field of a message"] += len(unknown)
    return message


def _add_calls(number: int, source: Fields, message: SourceMessage) -> None:
    for index, call in enumerate(source.objects("tool_calls"), start=1):
        function = call.object("function")
        call_id = call.any_text("id") or f"{number}-{index}"
        message.calls.append(
            call_of(call_id, function.text("name"), function.values.get("arguments"))
        )
    if source.values.get("function_call") is not None:
        function = source.object("function_call")
        arguments = function.values.get("arguments")
        message.calls.append(call_of(str(number), function.text("name"), arguments))


def _content(source: Fields, left_out: LeftOut) -> tuple[str, list[SourceFile]]:
    content = source.values.get("content")
    if content is None or isinstance(content, str):
        return content or "", []
    texts, files = [], []
    for part in source.objects("content"):
        kind = part.text("type")
        if kind in {"text", "input_text", "output_text", "refusal"}:
            texts.append(part.any_text("text", "refusal"))
        elif (file := _file(part)) is not None:
            files.append(file)
        elif kind in {"image_url", "input_image"}:
            left_out["image that is not in the export"] += 1
        else:
            left_out[f"content of the type {kind[:40] or 'unknown'}"] += 1
    return "\n\n".join(filter(None, texts)), files


def _file(part: Fields) -> SourceFile | None:
    image = part.values.get("image_url")
    url = image if isinstance(image, str) else as_object(image).get("url")
    if isinstance(url, str):
        return file_of_data_url(url)
    file = as_object(part.values.get("file"))
    return file_of_data_url(str(file.get("file_data") or ""), str(file.get("filename") or ""))
