"""Reads the conversation of a request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import orjson

from mochi_server.errors import JSONObject
from mochi_server.protocol.messages import (
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import data_url, let_others_run, question_of, reply_of
from .schemas import Part, UIFilePart, UIMessage, UIStepPart, UITextPart, UIToolPart

DENIED = "Error: the user denied this call."


async def read_history(
    messages: Sequence[UIMessage], reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Each step of an answer is a reply, with the results of its calls after it.

    Raises:
        InvalidRequest: a file is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    history: list[Message] = []
    files: list[NewAttachment] = []
    async for message in let_others_run(messages):
        if message.role == "system":
            history.append(SystemMessage(content=_text(message.parts)))
        elif message.role == "user":
            question, attached = await _question(message.parts, reader)
            history.append(question)
            files += attached
        else:
            for is_begin, parts in groupby(
                message.parts, lambda part: isinstance(part, UIStepPart)
            ):
                if not is_begin:
                    history += _step([*parts])
    return history, files


def _text(parts: Sequence[Part], kind: str = "text") -> str:
    return "\n\n".join(
        part.text for part in parts if isinstance(part, UITextPart) and part.type == kind
    )


async def _question(
    parts: Sequence[Part], reader: AttachmentReader
) -> tuple[UserMessage, list[NewAttachment]]:
    files: list[NewAttachment] = []
    for part in parts:
        if isinstance(part, UIFilePart):
            url = data_url(part.url, "A file")
            files.append(await reader.read(url, name=part.filename))
    return question_of(_text(parts), files), files


def _step(parts: Sequence[Part]) -> list[Message]:
    """Return a reply of the model and the results of its calls."""
    called = [part for part in parts if isinstance(part, UIToolPart)]
    calls = [
        ToolCall(id=part.tool_call_id, name=part.name, arguments=_arguments(part))
        for part in called
    ]
    results = [(part, _result(part)) for part in called]
    return [
        reply_of(_text(parts), calls, _text(parts, "reasoning")),
        *(
            ToolMessage(content=content, tool_name=part.name, tool_call_id=part.tool_call_id)
            for part, content in results
            if content is not None
        ),
    ]


def _arguments(part: UIToolPart) -> JSONObject:
    return part.input if isinstance(part.input, dict) else {"input": part.input}


def _result(part: UIToolPart) -> str | None:
    """Return what the model gets of a call; None if it has no result."""
    match part.state:
        case "output-available":
            output = part.output
            return output if isinstance(output, str) else orjson.dumps(output).decode()
        case "output-error":
            return f"Error: {part.error_text}"
        case "output-denied":
            return DENIED
    return None
