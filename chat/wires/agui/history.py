"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Iterator

from mochi_server.protocol.messages import (
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import data_url, let_others_run, question_of, reply_of
from ..openai.history import calls_of
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

    Raises:
        InvalidRequest: the arguments of a call are no JSON object; a file is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    history = [*_context_of(run)]
    files: list[NewAttachment] = []
    names: dict[str, str] = {}
    """Names of tools by the ids of their calls."""
    thought = ""
    async for message in let_others_run(run.messages):
        match message:
            case InputInstruction():
                history.append(SystemMessage(content=message.content))
            case InputQuestion():
                thought = ""  # its reply never came
                question, attached = await _question(message.content, reader)
                history.append(question)
                files += attached
            case InputThought():
                thought += message.content
            case InputReply():
                calls = calls_of(message.tool_calls)
                names |= {call.id: call.name for call in calls}
                history.append(reply_of(_text(message.content), calls, thought))
                thought = ""
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


def _context_of(run: RunAgentInput) -> Iterator[Message]:
    """Yield the context as a system message, with which the history begins."""
    if run.context:
        lines = [f"{item.description}: {item.value}" for item in run.context]
        yield SystemMessage(content="\n".join(lines))


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, ContentText))


async def _question(
    content: Content, reader: AttachmentReader
) -> tuple[UserMessage, list[NewAttachment]]:
    files: list[NewAttachment] = []
    for part in () if isinstance(content, str) else content:
        match part:
            case MediaPart(source=MediaData() as source):
                files.append(await reader.read(source.value, media_type=source.mime_type))
            case MediaPart():
                files.append(await reader.read(data_url(part.source.value, "A file")))
            case BinaryPart(data=str() as data):
                file = await reader.read(data, name=part.filename, media_type=part.mime_type)
                files.append(file)
            case BinaryPart():
                files.append(
                    await reader.read(data_url(part.url or "", "A file"), name=part.filename)
                )
    return question_of(_text(content), files), files
