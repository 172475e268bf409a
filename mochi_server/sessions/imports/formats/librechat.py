"""Conversations of LibreChat, each in a file of its own, flat or as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..conversation import (
    Files,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    file_of_data_url,
)
from ..fields import Fields

NAME = "LibreChat"


def recognises(value: dict[str, Any]) -> bool:
    return "conversationId" in value and ("messages" in value or "messagesTree" in value)


def read(source: Fields, files: Files) -> SourceConversation:
    options = source.object("options")
    conversation = SourceConversation(
        program="librechat",
        source_id=source.text("conversationId"),
        title=source.text("title"),
        model=options.text("model"),
        system_prompt=options.text("promptPrefix", "instructions", "system"),
        left_out=source.left_out,
    )
    tree = "messages" if "messages" in source.values else "messagesTree"
    before: str | None = None
    for key, above, message in _messages_of(source, tree):
        # With neither branches nor a tree, messages may have no parents.
        parent = message.text("parentMessageId") or above or before
        conversation.nodes[key] = Node(parent, _messages(key, message, files))
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
        name = message.text("messageId") or str(number)
        yield name, above, message
        waiting += reversed([(name, child) for child in message.objects("children")])


def _messages(key: str, source: Fields, files: Files) -> list[SourceMessage]:
    time = source.time("createdAt")
    if source.flag("error"):
        source.left_out["error that was shown as a reply"] += 1
        return []
    if source.values.keys().isdisjoint({"text", "content"}):
        source.left_out["message without content"] += 1
        return []
    attached = [*_files(source, files)]
    if source.flag("isCreatedByUser"):
        text = source.text("text") or _text(source)
        return [SourceMessage("user", text, time=time, files=attached)]
    reply = ReplyBuilder(key, source.text("model"), time)
    for part in source.objects("content"):
        _add(part, reply)
    if not reply.messages:
        reply.text(source.text("text"))
    reply.files(attached, source.left_out)
    if reply.messages and source.flag("unfinished"):
        reply.messages[-1].is_partial = reply.messages[-1].role == "assistant"
    return reply.messages


def _text(source: Fields) -> str:
    texts = []
    for part in source.objects("content"):
        if (kind := part.text("type")) == "text":
            texts.append(_value(part, kind))
        else:
            part.leave_out("content of the type", kind)
    return "\n\n".join(filter(None, texts))


def _value(part: Fields, kind: str) -> str:
    """Return the text of a part, which may be that of an object."""
    if isinstance(part.values.get(kind), dict):
        return part.object(kind).text("value")
    return part.text(kind)


def _add(part: Fields, reply: ReplyBuilder) -> None:
    match part.text("type"):
        case "text":
            reply.text(_value(part, "text"))
        case "think":
            reply.thinking(_value(part, "think"))
        case "tool_call":
            call = part.object("tool_call")
            function = call.object("function")
            name = call.text("name") or function.text("name")
            arguments = call.values.get("args", function.values.get("arguments"))
            call_id = reply.call(name, arguments, call.text("id"))
            if output := call.text("output") or function.text("output"):
                reply.result(output, call_id, name)
        case kind:
            part.leave_out("content of the type", kind)


def _files(source: Fields, files: Files) -> Iterator[SourceFile]:
    for each in source.objects("files"):
        name = each.text("filename")
        file = file_of_data_url(each.text("filepath"), name)
        file = file or files.find(each.text("file_id"))
        if file is not None:
            yield replace(file, name=name or file.name)
        else:
            kind = "image" if each.text("type").startswith("image/") else "file"
            source.left_out[f"{kind} that is not in the export"] += 1
