"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_server.chat.waiting_calls import WaitingCalls
from mochi_server.core.ids import new_call_id
from mochi_server.protocol.messages import (
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import let_others_run, question_of, reply_of
from .schemas import OllamaMessage


async def read_history(
    messages: Sequence[OllamaMessage], reader: AttachmentReader, *, is_whole: bool
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Calls of Ollama need no ids: a result is of the first call of its name that waits for one.
    Clients such as LiteLLM send no calls at all: a result that follows a reply without any becomes
    a message of the user.

    Args:
        messages: Those of the request.
        reader: Reads their images.
        is_whole: Whether they are the whole conversation; else a session may have the calls.

    Raises:
        InvalidRequest, AttachmentTooLarge, AttachmentUnsupported: of an image.
    """
    history: list[Message] = []
    files: list[NewAttachment] = []
    has_calls, waiting = False, WaitingCalls(())
    async for message in let_others_run(messages):
        match message.role:
            case "system":
                history.append(SystemMessage(content=message.content))
            case "user":
                images = [await reader.read(image) for image in message.images or ()]
                history.append(question_of(message.content, images))
                files += images
            case "assistant":
                calls = _calls(message)
                has_calls = bool(calls)
                waiting = WaitingCalls((each.id, each.name) for each in calls)
                history.append(reply_of(message.content, calls, message.thinking))
            case "tool" if is_whole and not has_calls and message.tool_call_id is None:
                name = f" of {message.tool_name!r}" if message.tool_name else ""
                history.append(UserMessage(content=f"Result{name}:\n{message.content}"))
            case "tool":
                history.append(_result(message, waiting))
    return history, files


def _calls(message: OllamaMessage) -> list[ToolCall]:
    return [
        ToolCall(
            id=call.id or new_call_id(),
            name=call.function.name,
            arguments=call.function.arguments,
        )
        for call in message.tool_calls or ()
    ]


def _result(message: OllamaMessage, waiting: WaitingCalls) -> ToolMessage:
    """Return a result, and take its call from those that wait."""
    call_id, name = message.tool_call_id, message.tool_name
    call_id, name = waiting.take(call_id, name) or (call_id, name)
    return ToolMessage(content=message.content, tool_name=name, tool_call_id=call_id)
