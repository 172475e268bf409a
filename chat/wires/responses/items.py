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

from ..common.history import FILES_OF_RESULTS, let_others_run
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
    history = _HistoryReader(reader)
    async for item in let_others_run(items):
        await history.read(item)
    history.end_results()
    return history.messages, history.files


class _HistoryReader:
    """Makes messages, as sessions have them, of items."""

    def __init__(self, reader: AttachmentReader) -> None:
        self._reader = reader
        self._names: dict[str, str] = {}
        """Names of functions by the ids of their calls."""
        self._of_results: list[NewAttachment] = []
        """Files of the results before, which no message has yet."""
        self.messages: list[Message] = []
        self.files: list[NewAttachment] = []

    async def read(self, item: InputItem) -> None:
        """Add an item."""
        if isinstance(item, InputCallOutput):
            await self._read_result(item)
            return
        self.end_results()
        match item:
            case InputMessage():
                await self._read_message(item)
            case InputReasoning():
                thought = "".join(part.text for part in item.content or ())
                self._reply(is_open=False).thinking = thought or None
            case InputCall():
                call = call_of(item.call_id, item.name, item.arguments)
                self._names[call.id] = call.name
                reply = self._reply(is_open=True)
                if reply.tool_calls is None:
                    reply.tool_calls = []
                reply.tool_calls.append(call.as_stored())
            case InputReference():  # the session has it
                self.messages.append(AssistantMessage())
            case _:
                pass

    def end_results(self) -> None:
        """Add the files of the results, which have no place in them."""
        if self._of_results:
            message = UserMessage(content=FILES_OF_RESULTS)
            attach(message, self._of_results)
            self.messages.append(message)
            self._of_results = []

    async def _read_message(self, item: InputMessage) -> None:
        text = text_of(item.content)
        if item.role == "user":
            question = UserMessage(content=text)
            attach(question, await self._files_of(item.content))
            self.messages.append(question)
        elif item.role == "assistant":
            self._reply(is_open=not self._has_answer()).content = text
        else:
            self.messages.append(SystemMessage(content=text))

    async def _read_result(self, item: InputCallOutput) -> None:
        result = ToolMessage(
            content=text_of(item.output),
            tool_name=self._names.get(item.call_id),
            tool_call_id=item.call_id,
        )
        self.messages.append(result)
        self._of_results += await self._files_of(item.output)

    async def _files_of(self, content: InputContent) -> list[NewAttachment]:
        """Read the images and files of a content."""
        files: list[NewAttachment] = []
        for part in () if isinstance(content, str) else content:
            if isinstance(part, InputImage):
                if not part.image_url.startswith("data:"):
                    raise InvalidRequest("An image must be a data URL: the server fetches none.")
                files.append(await self._reader.read(part.image_url))
            elif isinstance(part, InputFile):
                files.append(await self._reader.read(part.file_data, name=part.filename))
        self.files += files
        return files

    def _reply(self, *, is_open: bool) -> AssistantMessage:
        """Return the reply of an item: the last message if it is open, else a new one."""
        last = self.messages[-1] if self.messages else None
        if is_open and isinstance(last, AssistantMessage):
            return last
        reply = AssistantMessage()
        self.messages.append(reply)
        return reply

    def _has_answer(self) -> bool:
        last = self.messages[-1] if self.messages else None
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
        "error": None if error is None else call_error(error),
        "status": status,
        "approval_request_id": None,
    }


def call_error(message: str) -> Item:
    """Return the error of a call of a tool of the server."""
    content = [{"type": "text", "text": message}]
    return {"type": "mcp_tool_execution_error", "content": content}


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
