"""Conversations of LibreChat, each in a file of its own, flat or as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conversation import (
    Fields,
    Files,
    LeftOut,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    as_object,
    file_of_data_url,
)

NAME = "LibreChat"


def recognises(value: dict[str, Any]) -> bool:
    return "conversationId" in value and ("messages" in value or "messagesTree" in value)


def read(source: Fields, files: Files) -> SourceConversation:
    options = source.object("options")
    conversation = SourceConversation(
        program="librechat",
        source_id=source.text("conversationId"),
        place=source.place,
        title=source.text("title"),
        model=options.any_text("model"),
        system_prompt=options.any_text("promptPrefix", "instructions", "system"),
    )
    tree = "messages" if "messages" in source.values else "messagesTree"
    before: str | None = None
    for key, above, message in _messages_of(source, tree):
        # With neither branches nor a tree, messages may have no parents.
        parent = message.any_text("parentMessageId") or above or before
        messages = _messages(key, message, files, conversation.left_out)
        conversation.nodes[key] = Node(parent, messages)
        before = key
    times = [each.time for node in conversation.nodes.values() for each in node.messages]
    known = sorted(filter(None, times))
    if known:
        conversation.created_at, conversation.updated_at = known[0], known[-1]
    return conversation


def _messages_of(source: Fields, key: str) -> Iterator[tuple[str, str | None, Fields]]:
    """Yield the messages of a list or a tree: key, key of the one above, message."""
    waiting: list[tuple[str | None, Fields]] = [(None, each) for each in source.objects(key)]
    waiting.reverse()
    number = 0
    while waiting:
        above, message = waiting.pop()
        number += 1
        name = message.any_text("messageId") or str(number)
        yield name, above, message
        waiting += reversed([(name, child) for child in message.objects("children")])


def _messages(key: str, source: Fields, files: Files, left_out: LeftOut) -> list[SourceMessage]:
    time = source.time("createdAt")
    if source.values.get("error") is True:
        left_out["error that was shown as a reply"] += 1
        return []
    if source.values.get("isCreatedByUser") is True:
        text = source.any_text("text") or _text(source, left_out)
        attached = [*_files(source, files, left_out)]
        return [SourceMessage("user", text, time=time, files=attached)]
    reply = ReplyBuilder(key, source.any_text("model"), time)
    for part in source.objects("content"):
        _add(part, reply, left_out)
    if not reply.messages:
        reply.text(source.text("text"))
    reply.files([*_files(source, files, left_out)], left_out)
    if reply.messages and source.values.get("unfinished") is True:
        reply.messages[-1].is_partial = reply.messages[-1].role == "assistant"
    return reply.messages


def _text(source: Fields, left_out: LeftOut) -> str:
    reply = ReplyBuilder("")
    for part in source.objects("content"):
        _add(part, reply, left_out)
    return reply.messages[0].text if reply.messages else ""


def _add(part: Fields, reply: ReplyBuilder, left_out: LeftOut) -> None:
    match part.text("type"):
        case "text" | "think" as kind:
            value = part.values.get(kind)
            text = value if isinstance(value, str) else str(as_object(value).get("value") or "")
            (reply.text if kind == "text" else reply.thinking)(text)
        case "tool_call":
            call = part.object("tool_call")
            name = call.any_text("name") or call.object("function").any_text("name")
            arguments = call.values.get("args", call.object("function").values.get("arguments"))
            call_id = reply.call(name, arguments, call.any_text("id"))
            if output := call.any_text("output") or call.object("function").any_text("output"):
                reply.result(output, call_id, name)
        case kind:
            left_out[f"content of the type {kind[:40]}"] += 1


def _files(source: Fields, files: Files, left_out: LeftOut) -> Iterator[SourceFile]:
    for each in source.objects("files"):
        name = each.any_text("filename")
        file = file_of_data_url(each.any_text("filepath"), name)
        file = file or files.find(each.any_text("file_id"))
        if file is not None:
            yield file
        else:
            kind = "image" if each.any_text("type").startswith("image/") else "file"
            left_out[f"{kind} that is not in the export"] += 1
