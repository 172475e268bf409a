"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_server.core.json_text import read_json
from mochi_server.errors import InvalidRequest
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
from .schemas import (
    AnyPart,
    ChatMessage,
    FilePart,
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
                calls = [
                    call_of(call.id, call.function.name, call.function.arguments)
                    for call in message.tool_calls or ()
                ]
                names |= {call.id: call.name for call in calls}
                history.append(_reply(message, calls))
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
            if not part.image_url.url.startswith("data:"):
                raise InvalidRequest("An image must be a data URL: the server fetches none.")
            files.append(await reader.read(part.image_url.url))
        elif isinstance(part, FilePart):
            files.append(await reader.read(part.file.file_data, name=part.file.filename))
    texts = [part.text for part in content if isinstance(part, TextPart)]
    question = UserMessage(content="\n".join(texts))
    attach(question, files)
    return question, files


def call_of(call_id: str, name: str, text: str) -> ToolCall:
    """Return a call that a client sends back.

    Raises:
        InvalidRequest: its arguments are no JSON object.
    """
    arguments = read_json(text or "{}")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"The arguments of the call {call_id!r} are no JSON object.")
    return ToolCall(id=call_id, name=name, arguments=arguments)


def _reply(message: ReplyMessage, calls: Sequence[ToolCall]) -> AssistantMessage:
    reply = AssistantMessage(content=_text(message.content))
    if message.reasoning_content:
        reply.thinking = message.reasoning_content
    if calls:
        reply.tool_calls = [call.as_stored() for call in calls]
    return reply
