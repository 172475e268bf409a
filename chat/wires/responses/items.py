"""Items of responses and conversations, made of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from pydantic import JsonValue

from mochi_server.chat.completions import BETWEEN_PROMPTS
from mochi_server.chat.responses import RECORD, ResponseId, begins_another, run_of
from mochi_server.core.media import IMAGES
from mochi_server.errors import JSONObject, MessageNotFound
from mochi_server.protocol.events import ConfirmationDecided, ConfirmationRequired
from mochi_server.services.history import objects
from mochi_server.sessions.attachments import attachments_of
from mochi_server.sessions.versions import instant

from .schemas import SERVER_LABEL

Item = dict[str, Any]
Placed = tuple[int, Item]
"""The index of a message, and an item of it."""
Call = tuple[str, str, JSONObject]
"""Id, name and arguments of a call."""


def reasoning_item(
    item_id: str, text: str, status: str = "completed", *, as_summary: bool = False
) -> Item:
    """Return the item of a thought, which is shown whole, or in the place of a summary."""
    part = summary_part(text) if as_summary else {"type": "reasoning_text", "text": text}
    parts = [part] if text else []
    return {
        "id": item_id,
        "type": "reasoning",
        "summary": parts if as_summary else [],
        "content": [] if as_summary else parts,
        "status": status,
    }


def summary_part(text: str) -> Item:
    return {"type": "summary_text", "text": text}


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
    """Return the item of an event, with this number, that asks for a decision."""
    return {
        "id": f"mcpr_{event.confirmation_id}_{number}",
        "type": "mcp_approval_request",
        "server_label": SERVER_LABEL,
        "name": event.tool_name,
        "arguments": orjson.dumps(event.arguments).decode(),
    }


def decision_item(event: ConfirmationDecided, number: int) -> Item:
    """Return the item by which a client has decided what the event of this number has asked."""
    name = f"{event.confirmation_id}_{number}"
    return {
        "id": f"mcprs_{name}",
        "type": "mcp_approval_response",
        "approval_request_id": f"mcpr_{name}",
        "approve": event.approved,
        "reason": event.reason,
    }


def output_items(
    messages: Sequence[JSONObject],
    response_id: ResponseId,
    clients: Sequence[str],
    *,
    as_summary: bool,
    is_ended: bool = True,
) -> list[Item]:
    """Return the items of stored messages of an answer.

    Args:
        messages: Replies of the model, and results of the server's tools.
        response_id: The response that they are of.
        clients: Names of the functions that the client runs.
        as_summary: Whether thoughts are shown as a summary.
        is_ended: Whether a call without a result will never have one.
    """
    results = {str(each.get("tool_call_id")): each for each in messages if _is(each, "tool")}
    items: list[Item] = []
    for number, reply in enumerate(each for each in messages if _is(each, "assistant")):
        status = "incomplete" if reply.get("interrupted") else "completed"
        if thinking := reply.get("thinking"):
            name = response_id.item("rs", number)
            items.append(reasoning_item(name, str(thinking), status, as_summary=as_summary))
        if content := reply.get("content"):
            items.append(message_item(response_id.item("msg", number), str(content), status))
        calls = [*_calls(reply)]
        own = _own_calls(calls, clients, results, is_ended=is_ended)
        items += [
            _stored_call(call, response_id.item("mcp", call[0]), results.get(call[0]))
            if is_ended or call[0] in results
            else tool_call_item(call, response_id.item("mcp", call[0]), status="in_progress")
            for call in own
        ]
        items += [
            function_call_item(call, response_id.item("fc", call[0]))
            for call in calls
            if call not in own
        ]
    return items


def _own_calls(
    calls: Sequence[Call],
    clients: Sequence[str],
    results: Mapping[str, JSONObject],
    *,
    is_ended: bool,
) -> list[Call]:
    """Return the calls of a reply that the server runs.

    Where the client runs some and the answer has ended, those without a result are the client's.
    """
    are_clients = is_ended and any(call[1] in clients for call in calls)
    return [
        call
        for call in calls
        if call[1] not in clients and not (are_clients and call[0] not in results)
    ]


def _is(message: JSONObject, role: str) -> bool:
    return message.get("role") == role


def _stored_calls(reply: JSONObject) -> Sequence[JsonValue]:
    calls = reply.get("tool_calls")
    return calls if isinstance(calls, list) else ()


def _calls(reply: JSONObject) -> Iterator[Call]:
    for call in objects(_stored_calls(reply)):
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


def input_items(messages: Sequence[JSONObject], instructions: object = None) -> Iterator[Placed]:
    """Yield the items of stored messages, as of a request that has sent them.

    ``instructions``: what the system prompt begins with, and no item has.
    """
    for index, message in enumerate(messages):
        message_id = str(message.get("message_id"))
        if _is(message, "assistant"):
            yield from ((index, item) for item in _reply_items(message, message_id))
        elif not _is(message, "system"):
            yield index, _said_item(message, message_id)
        elif prompt := _without_instructions(str(message.get("content") or ""), instructions):
            yield index, _said_item({**message, "content": prompt}, message_id)


def conversation_items(messages: Sequence[JsonValue], session_id: str) -> Iterator[Placed]:
    """Yield the items of a whole conversation; calls are all shown as the client's own.

    Those of an answer have the ids that its response has.
    """
    response: ResponseId | None = None
    reply, as_summary = 0, False
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if begins_another(message):
            run_id, reply = run_of(message), 0
            response = ResponseId(run_id, session_id) if isinstance(run_id, str) else None
            as_summary = wants_summary(message.get(RECORD))
        if response is None or not _is(message, "assistant"):
            yield from ((index, item) for _, item in input_items([message]))
            continue
        items = _reply_items(message, reply, response, as_summary=as_summary)
        yield from ((index, item) for item in items)
        reply += 1


def wants_summary(record: object) -> bool:
    """Return whether a request, of which this is kept, asks for summaries of thoughts."""
    return isinstance(record, dict) and record.get("summary") is not None


def said_by_user(messages: Sequence[JSONObject]) -> list[Item]:
    """Return the items of what the user has said in stored messages; of files, their names."""
    return [_said_item(each, str(each.get("message_id"))) for each in messages if _is(each, "user")]


def _without_instructions(prompt: str, instructions: object) -> str:
    if not isinstance(instructions, str):
        return prompt
    return prompt.removeprefix(instructions).removeprefix(BETWEEN_PROMPTS)


def _reply_items(
    reply: JSONObject,
    name: str | int,
    response: ResponseId | None = None,
    *,
    as_summary: bool = False,
) -> Iterator[Item]:
    """Yield the items of a reply; they are of a response, or of no one that is known."""

    def item_id(kind: str, name: str | int) -> str:
        return f"{kind}_{name}" if response is None else response.item(kind, name)

    if thinking := reply.get("thinking"):
        yield reasoning_item(item_id("rs", name), str(thinking), as_summary=as_summary)
    if content := reply.get("content"):
        yield message_item(item_id("msg", name), str(content))
    for call in _calls(reply):
        yield function_call_item(call, item_id("fc", call[0]))


def _said_item(message: JSONObject, message_id: str) -> Item:
    """Return the item of a message that no model has said."""
    text = str(message.get("content") or "")
    if _is(message, "tool"):
        return {
            "id": f"fco_{message_id}",
            "type": "function_call_output",
            "call_id": str(message.get("tool_call_id")),
            "output": text,
            "status": "completed",
        }
    files = [_file_part(entry) for entry in attachments_of(message)]
    said = [{"type": "input_text", "text": text}] if text or not files else []
    return {
        "id": f"msg_{message_id}",
        "type": "message",
        "role": str(message.get("role")),
        "content": [*said, *files],
        "status": "completed",
    }


def _file_part(entry: JSONObject) -> Item:
    """Return the part of an attached file, without its content."""
    if entry.get("media_type") in IMAGES:
        return {"type": "input_image", "detail": "auto", "file_id": None, "image_url": None}
    return {"type": "input_file", "file_id": None, "filename": entry.get("name")}


def changes_without(
    messages: Sequence[JsonValue], session_id: str, item_id: str
) -> dict[int, JSONObject | None]:
    """Return what messages become when an item is deleted, by their indexes; None: nothing.

    A call and its result go together: models refuse one without the other.

    Raises:
        MessageNotFound: there is no such item.
    """
    index, item = find_item(messages, session_id, item_id)
    message = messages[index]
    assert isinstance(message, dict)  # noqa: S101
    if item["type"] in {"function_call", "function_call_output"}:
        return _without_call(messages, index, item["call_id"])
    if not _is(message, "assistant"):
        return {index: None}
    return {index: _left({**message, "thinking" if item["type"] == "reasoning" else "content": ""})}


def find_item(messages: Sequence[JsonValue], session_id: str, item_id: str) -> tuple[int, Item]:
    """Return an item of a conversation, and the index of its message.

    Raises:
        MessageNotFound: there is no such item.
    """
    for index, item in conversation_items(messages, session_id):
        if item["id"] == item_id:
            return index, item
    raise MessageNotFound(f"There is no item {item_id!r}.", details={"item_id": item_id})


def _without_call(
    messages: Sequence[JsonValue], index: int, call_id: str
) -> dict[int, JSONObject | None]:
    changes: dict[int, JSONObject | None] = {index: None}
    for number in range(index, -1, -1):
        reply = messages[number]
        if isinstance(reply, dict) and call_id in [call[0] for call in _calls(reply)]:
            calls = objects(_stored_calls(reply))
            kept = [each for each in calls if str(each.get("id")) != call_id]
            changes[number] = _left({**reply, "tool_calls": [*kept]})
            break
    for result in range(number + 1, len(messages)):
        message = messages[result]
        if not isinstance(message, dict) or not _is(message, "tool"):
            break
        if str(message.get("tool_call_id")) == call_id:
            changes[result] = None
    return changes


def _left(reply: JSONObject) -> JSONObject | None:
    """Return a reply without what is empty, and without the provider's copy of it."""
    parts = {name: reply.get(name) for name in ("thinking", "tool_calls")}
    others = {key: value for key, value in reply.items() if key not in {*parts, "provider_data"}}
    kept = {name: value for name, value in parts.items() if value}
    return {**others, **kept} if kept or others.get("content") else None


def seconds_of(timestamp: object) -> int | None:
    """Return a stored time in whole seconds since 1970; None if it is none."""
    try:
        return int(instant(timestamp).timestamp())
    except ValueError:
        return None
