"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_server.core.json_text import read_json
from mochi_server.errors import InvalidRequest
from mochi_server.protocol.messages import (
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import data_url, let_others_run, question_of, reply_of
from .schemas import (
    AnyPart,
    ChatMessage,
    FilePart,
    FunctionCall,
    FunctionResult,
    ImagePart,
    InstructionMessage,
    QuestionMessage,
    RefusalPart,
    ReplyMessage,
    TextOnly,
    TextPart,
)


async def read_history(
    messages: Sequence[ChatMessage], reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Raises:
        InvalidRequest: the arguments of a call are no JSON object; an image is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    history: list[Message] = []
    files: list[NewAttachment] = []
    names: dict[str, str] = {}
    """Names of the functions by the ids of their calls."""
    async for message in let_others_run(messages):
        match message:
            case InstructionMessage():
                history.append(SystemMessage(content=_text(message.content)))
            case QuestionMessage():
                question, attached = await _question(message.content, reader)
                history.append(question)
                files += attached
            case ReplyMessage():
                calls = calls_of(message.tool_calls)
                names |= {call.id: call.name for call in calls}
                history.append(reply_of(_text(message.content), calls, message.reasoning_content))
            case FunctionResult():
                result = ToolMessage(
                    content=_text(message.content),
                    tool_name=names.get(message.tool_call_id),
                    tool_call_id=message.tool_call_id,
                )
                history.append(result)
    return history, files


def _text(content: str | Sequence[TextOnly] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in content)


async def _question(
    content: str | Sequence[AnyPart], reader: AttachmentReader
) -> tuple[UserMessage, list[NewAttachment]]:
    if isinstance(content, str):
        return UserMessage(content=content), []
    files: list[NewAttachment] = []
    for part in content:
        if isinstance(part, ImagePart):
            files.append(await reader.read(data_url(part.image_url.url, "An image")))
        elif isinstance(part, FilePart):
            files.append(await reader.read(part.file.file_data, name=part.file.filename))
    texts = [part.text for part in content if isinstance(part, TextPart)]
    return question_of("\n".join(texts), files), files


def call_of(call_id: str, name: str, text: str) -> ToolCall:
    """Return a call that a client sends back.

    Raises:
        InvalidRequest: its arguments are no JSON object.
    """
    arguments = read_json(text or "{}")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"The arguments of the call {call_id!r} are no JSON object.")
    return ToolCall(id=call_id, name=name, arguments=arguments)


def calls_of(calls: Sequence[FunctionCall] | None) -> list[ToolCall]:
    """Return the calls of a reply that a client sends back.

    Raises:
        InvalidRequest: the arguments of one are no JSON object.
    """
    return [call_of(call.id, call.function.name, call.function.arguments) for call in calls or ()]
