"""Reads the conversation of a request."""

from __future__ import annotations

from mochi_server.errors import InvalidRequest
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment, attach

from ..common.history import let_others_run
from ..openai.history import call_of
from .schemas import (
    BinaryPart,
    Content,
    ContentText,
    InputInstruction,
    InputQuestion,
    InputReply,
    InputResult,
    InputThought,
    MediaData,
    MediaPart,
    RunAgentInput,
)


async def read_history(
    run: RunAgentInput, reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    The context is a system message at the beginning.

    Raises:
        InvalidRequest: the arguments of a call are no JSON object; a file is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    history: list[Message] = []
    files: list[NewAttachment] = []
    names: dict[str, str] = {}
    """Names of tools by the ids of their calls."""
    thought = ""
    if run.context:
        lines = [f"{item.description}: {item.value}" for item in run.context]
        history.append(SystemMessage(content="\n".join(lines)))
    async for message in let_others_run(run.messages):
        match message:
            case InputInstruction():
                history.append(SystemMessage(content=message.content))
            case InputQuestion():
                question, attached = await _question(message.content, reader)
                history.append(question)
                files += attached
            case InputThought():
                thought += message.content
            case InputReply():
                reply = _reply(message, names)
                reply.thinking, thought = thought or None, ""
                history.append(reply)
            case InputResult():
                result = ToolMessage(
                    content=_text(message.content),
                    tool_name=names.get(message.tool_call_id),
                    tool_call_id=message.tool_call_id,
                )
                history.append(result)
            case _:
                pass
    return history, files


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, ContentText))


async def _question(
    content: Content, reader: AttachmentReader
) -> tuple[UserMessage, list[NewAttachment]]:
    question = UserMessage(content=_text(content))
    files: list[NewAttachment] = []
    for part in () if isinstance(content, str) else content:
        match part:
            case MediaPart(source=MediaData() as source):
                files.append(await reader.read(source.value, media_type=source.mime_type))
            case MediaPart():
                files.append(await reader.read(_data_url(part.source.value)))
            case BinaryPart(data=str() as data):
                file = await reader.read(data, name=part.filename, media_type=part.mime_type)
                files.append(file)
            case BinaryPart():
                files.append(await reader.read(_data_url(part.url or ""), name=part.filename))
    attach(question, files)
    return question, files


def _data_url(url: str) -> str:
    if not url.startswith("data:"):
        raise InvalidRequest("A file must be a data URL: the server fetches none.")
    return url


def _reply(message: InputReply, names: dict[str, str]) -> AssistantMessage:
    calls = [
        call_of(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    ]
    names |= {call.id: call.name for call in calls}
    reply = AssistantMessage(content=_text(message.content))
    if calls:
        reply.tool_calls = [call.as_stored() for call in calls]
    return reply
