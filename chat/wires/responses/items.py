"""Items of responses: read into messages, and made of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from mochi_server.chat.responses import ResponseId
from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mochi_server.services.history import objects
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment, attach

from ..common.history import let_others_run
from ..openai.history import call_of
from .schemas import (
    InputCall,
    InputCallOutput,
    InputContent,
    InputFile,
    InputImage,
    InputItem,
    InputMessage,
    InputReasoning,
    InputReference,
    InputRefusal,
)

SERVER_LABEL = "mochi"
"""Name of this server in items of calls of its tools."""

Item = dict[str, Any]
Call = tuple[str, str, JSONObject]
"""Id, name and arguments of a call."""


async def read_items(
    items: Sequence[InputItem], reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Calls and thoughts belong to the message of the model beside them.

    Raises:
        InvalidRequest: the arguments of a call are no JSON object; an image is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    messages: list[Message] = []
    files: list[NewAttachment] = []
    names: dict[str, str] = {}
    async for item in let_others_run(items):
        match item:
            case InputMessage(role="user"):
                message, attached = await _question(item.content, reader)
                messages.append(message)
                files += attached
            case InputMessage(role="assistant"):
                _reply(messages, is_open=not _has_answer(messages)).content = text_of(item.content)
            case InputMessage():
                messages.append(SystemMessage(content=text_of(item.content)))
            case InputReasoning():
                thought = "".join(part.text for part in item.content or ())
                _reply(messages, is_open=False).thinking = thought or None
            case InputCall():
                call = call_of(item.call_id, item.name, item.arguments)
                names[call.id] = call.name
                reply = _reply(messages, is_open=True)
                if reply.tool_calls is None:
                    reply.tool_calls = []
                reply.tool_calls.append(call.as_stored())
            case InputCallOutput():
                result = ToolMessage(
                    content=text_of(item.output),
                    tool_name=names.get(item.call_id),
                    tool_call_id=item.call_id,
                )
                messages.append(result)
            case InputReference():  # the session has it
                messages.append(AssistantMessage())
            case _:
                pass
    return messages, files


def _reply(messages: list[Message], *, is_open: bool) -> AssistantMessage:
    """Return the reply to which an item belongs: the last message if it is open, else a new one."""
    last = messages[-1] if messages else None
    if is_open and isinstance(last, AssistantMessage):
        return last
    reply = AssistantMessage()
    messages.append(reply)
    return reply


def _has_answer(messages: Sequence[Message]) -> bool:
    last = messages[-1] if messages else None
    return isinstance(last, AssistantMessage) and bool(last.content or last.tool_calls)


def text_of(content: InputContent) -> str:
    """Return the texts of a content."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, InputRefusal):
            texts.append(part.refusal)
        elif not isinstance(part, InputImage | InputFile):
            texts.append(part.text)
    return "\n".join(texts)


async def _question(
    content: InputContent, reader: AttachmentReader
) -> tuple[UserMessage, list[NewAttachment]]:
    question = UserMessage(content=text_of(content))
    files: list[NewAttachment] = []
    for part in () if isinstance(content, str) else content:
        if isinstance(part, InputImage):
            if not part.image_url.startswith("data:"):
                raise InvalidRequest("An image must be a data URL: the server fetches none.")
            files.append(await reader.read(part.image_url))
        elif isinstance(part, InputFile):
            files.append(await reader.read(part.file_data, name=part.filename))
    attach(question, files)
    return question, files


def reasoning_item(item_id: str, text: str, status: str = "completed") -> Item:
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {
        "id": item_id,
        "type": "reasoning",
        "summary": [],
        "content": content,
        "status": status,
    }


def text_part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(item_id: str, text: str | None, status: str = "completed") -> Item:
    """Return the item of a message; one that has just begun has no part."""
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "content": [] if text is None else [text_part(text)],
        "status": status,
    }


def function_call_item(call: Call, item_id: str) -> Item:
    """Return the item of a call of the client's function."""
    call_id, name, arguments = call
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": orjson.dumps(arguments).decode(),
        "status": "completed",
    }


def tool_call_item(
    call: Call,
    item_id: str,
    *,
    output: str | None = None,
    error: str | None = None,
    status: str = "completed",
) -> Item:
    """Return the item of a call of a tool of the server."""
    _, name, arguments = call
    return {
        "id": item_id,
        "type": "mcp_call",
        "server_label": SERVER_LABEL,
        "name": name,
        "arguments": orjson.dumps(arguments).decode(),
        "output": output,
        "error": error,
        "status": status,
        "approval_request_id": None,
    }


def approval_item(event: ConfirmationRequired, number: int) -> Item:
    """Return the item that asks for a decision.

    Args:
        event: The event that asks.
        number: Its number.
    """
    return {
        "id": f"mcpr_{event.confirmation_id}_{number}",
        "type": "mcp_approval_request",
        "server_label": SERVER_LABEL,
        "name": event.tool_name,
        "arguments": orjson.dumps(event.arguments).decode(),
    }


def output_items(
    messages: Sequence[JSONObject],
    response_id: ResponseId,
    clients: Sequence[str],
    *,
    is_ended: bool = True,
) -> list[Item]:
    """Return the items of stored messages of an answer.

    Args:
        messages: Replies of the model, and results of the server's tools.
        response_id: The response that they are of.
        clients: Names of the functions that the client runs.
        is_ended: Whether a call without a result will never have one.
    """
    results = {str(each.get("tool_call_id")): each for each in messages if _is(each, "tool")}
    items: list[Item] = []
    replies = [each for each in messages if _is(each, "assistant")]
    for number, reply in enumerate(replies):
        status = "incomplete" if reply.get("interrupted") else "completed"
        if thinking := reply.get("thinking"):
            items.append(reasoning_item(response_id.item("rs", number), str(thinking), status))
        if content := reply.get("content"):
            items.append(message_item(response_id.item("msg", number), str(content), status))
        calls = [*_calls(reply)]
        own = [call for call in calls if call[1] not in clients]
        items += [
            _stored_call(call, response_id.item("mcp", call[0]), results.get(call[0]))
            if is_ended or call[0] in results
            else tool_call_item(call, response_id.item("mcp", call[0]), status="in_progress")
            for call in own
        ]
        items += [
            function_call_item(call, response_id.item("fc", call[0]))
            for call in calls
            if call[1] in clients
        ]
    return items


def _is(message: JSONObject, role: str) -> bool:
    return message.get("role") == role


def _calls(reply: JSONObject) -> Iterator[Call]:
    calls = reply.get("tool_calls")
    for call in objects(calls if isinstance(calls, list) else ()):
        function = call.get("function")
        if isinstance(function, dict):
            arguments = function.get("arguments")
            given = arguments if isinstance(arguments, dict) else {}
            yield str(call.get("id")), str(function.get("name")), given


def _stored_call(call: Call, item_id: str, result: JSONObject | None) -> Item:
    output = None if result is None else str(result.get("content") or "")
    failed = output is None or output.startswith("Error: ")
    return tool_call_item(
        call,
        item_id,
        output=None if failed else output,
        error=output if failed else None,
        status="failed" if failed else "completed",
    )


def input_items(messages: Sequence[JSONObject]) -> list[Item]:
    """Return the items of stored messages that a request has added."""
    items: list[Item] = []
    for message in messages:
        message_id, text = message.get("message_id"), str(message.get("content") or "")
        if _is(message, "tool"):
            call_id = str(message.get("tool_call_id"))
            items.append(
                {
                    "id": f"fco_{message_id}",
                    "type": "function_call_output",
                    "call_id": call_id,
                    "output": text,
                    "status": "completed",
                }
            )
        else:
            part = {"type": "input_text", "text": text}
            items.append(
                {
                    "id": f"msg_{message_id}",
                    "type": "message",
                    "role": str(message.get("role")),
                    "content": [part],
                    "status": "completed",
                }
            )
    return items


def conversation_items(messages: Sequence[JSONObject]) -> list[Item]:
    """Return the items of a whole conversation; calls are all shown as the client's own."""
    items: list[Item] = []
    for message in messages:
        if not _is(message, "assistant"):
            items += input_items([message])
            continue
        message_id = str(message.get("message_id"))
        if thinking := message.get("thinking"):
            items.append(reasoning_item(f"rs_{message_id}", str(thinking)))
        if content := message.get("content"):
            items.append(message_item(f"msg_{message_id}", str(content)))
        items += [function_call_item(call, f"fc_{call[0]}") for call in _calls(message)]
    return items
