"""Messages as OpenAI's API has them: ``{"messages": […]}``, or one message a line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, get_args

import orjson

from ....errors import JSONObject
from ...codec import encode
from ..conversation import (
    Files,
    Role,
    SourceConversation,
    SourceFile,
    SourceMessage,
    call_of,
    file_of_data_url,
)
from ..fields import Fields, as_object

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
        source_id=source.text("id", "conversation_id") or _digest(source.values),
        title=source.text("title"),
        created_at=source.time("created_at", "created"),
        model=source.text("model"),
        left_out=source.left_out,
    )
    if tools := source.values.get("tools"):
        count = len(tools) if isinstance(tools, list) else 1
        conversation.left_out["definition of a tool"] += count
    _add(conversation, source.objects("messages"))
    return conversation


def read_lines(messages: list[JSONObject]) -> SourceConversation:
    """Read messages that are a conversation."""
    conversation = SourceConversation(program="chat_messages", source_id=_digest(messages))
    _add(conversation, (Fields(message, conversation.left_out) for message in messages))
    return conversation


def _add(conversation: SourceConversation, messages: Iterable[Fields]) -> None:
    left_out = conversation.left_out
    for number, source in enumerate(messages):
        message = _message(number, source)
        if message is None:
            continue
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


def _message(number: int, source: Fields) -> SourceMessage | None:
    role = _ROLES.get(source.text("role"))
    if role is None:
        source.leave_out("message of the role", source.text("role"))
        return None
    if source.values.keys().isdisjoint({"content", "tool_calls", "function_call"}):
        source.left_out["message without content"] += 1
        return None
    text, files = _content(source)
    message = SourceMessage(
        role,
        text or source.text("refusal"),
        model=source.text("model"),
        time=source.time("timestamp"),
        message_id=source.text("message_id"),
    )
    if role == "assistant":
        message.thinking = source.text("thinking", "reasoning_content", "reasoning")
        _add_calls(number, source, message)
    elif role == "tool":
        message.tool_call_id = source.text("tool_call_id")
        message.tool_name = source.text("tool_name", "name")
    if files and role in {"user", "tool"}:
        message.files = files
    elif files:
        source.left_out["file in a reply of a model"] += len(files)
    if unknown := source.values.keys() - _KNOWN:
        source.left_out["unknown field of a message"] += len(unknown)
    return message


def _add_calls(number: int, source: Fields, message: SourceMessage) -> None:
    for index, call in enumerate(source.objects("tool_calls"), start=1):
        function = call.object("function")
        if not function.values:
            call.leave_out("call of the type", call.text("type"))
            continue
        call_id = call.text("id") or f"{number}-{index}"
        message.calls.append(
            call_of(call_id, function.text("name"), function.values.get("arguments"))
        )
    if source.values.get("function_call") is not None:
        function = source.object("function_call")
        arguments = function.values.get("arguments")
        message.calls.append(call_of(str(number), function.text("name"), arguments))


def _content(source: Fields) -> tuple[str, list[SourceFile]]:
    if isinstance(content := source.values.get("content"), str):
        return content, []
    texts, files = [], []
    for value in source.list("content"):
        part = Fields(as_object(value), source.left_out)
        kind = part.text("type")
        if isinstance(value, str):
            texts.append(value)
        elif kind in {"text", "input_text", "output_text", "refusal"}:
            texts.append(part.text("text", "refusal"))
        elif (file := _file(part)) is not None:
            files.append(file)
        elif kind in {"image_url", "input_image"}:
            source.left_out["image that is not in the export"] += 1
        else:
            part.leave_out("content of the type", kind)
    return "\n\n".join(filter(None, texts)), files


def _file(part: Fields) -> SourceFile | None:
    if isinstance(part.values.get("image_url"), dict):
        return file_of_data_url(part.object("image_url").text("url"))
    file = part.object("file")
    return file_of_data_url(part.text("image_url")) or file_of_data_url(
        file.text("file_data"), file.text("filename")
    )
