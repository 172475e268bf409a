"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_server.core.ids import new_call_id
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment, attach

from ..common.history import let_others_run
from .schemas import OllamaMessage


async def read_history(
    messages: Sequence[OllamaMessage], reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Calls of Ollama need no ids: a result is of the first call of its name that waits for one.

    Raises:
        InvalidRequest, AttachmentTooLarge, AttachmentUnsupported: of an image.
    """
    history: list[Message] = []
    files: list[NewAttachment] = []
    waiting: list[ToolCall] = []
    async for message in let_others_run(messages):
        match message.role:
            case "system":
                history.append(SystemMessage(content=message.content))
            case "user":
                images = [await reader.read(image) for image in message.images or ()]
                question = UserMessage(content=message.content)
                attach(question, images)
                history.append(question)
                files += images
            case "assistant":
                reply, waiting = _reply(message)
                history.append(reply)
            case "tool":
                history.append(_result(message, waiting))
    return history, files


def _reply(message: OllamaMessage) -> tuple[AssistantMessage, list[ToolCall]]:
    calls = [
        ToolCall(
            id=call.id or new_call_id(),
            name=call.function.name,
            arguments=call.function.arguments,
        )
        for call in message.tool_calls or ()
    ]
    reply = AssistantMessage(content=message.content)
    if message.thinking:
        reply.thinking = message.thinking
    if calls:
        reply.tool_calls = [call.as_stored() for call in calls]
    return reply, calls


def _result(message: OllamaMessage, waiting: list[ToolCall]) -> ToolMessage:
    """Return a result, and take its call from those that wait."""
    name, call_id = message.tool_name, message.tool_call_id
    for call in waiting:
        if call.id == call_id or (call_id is None and name in (None, call.name)):
            waiting.remove(call)
            name, call_id = call.name, call.id
            break
    return ToolMessage(content=message.content, tool_name=name, tool_call_id=call_id)
