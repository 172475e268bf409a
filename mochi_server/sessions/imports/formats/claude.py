"""Conversations of Claude: ``conversations.json``, alone or in the archive of an export."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..conversation import (
    Files,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    file_of_text,
    text_of_parts,
)
from ..fields import Fields

NAME = "Claude"


def recognises(value: dict[str, Any]) -> bool:
    return "chat_messages" in value


def read(source: Fields, files: Files) -> SourceConversation:
    conversation = SourceConversation(
        program="claude",
        source_id=source.text("uuid"),
        title=source.text("name"),
        created_at=source.time("created_at"),
        updated_at=source.time("updated_at"),
        model=source.text("model"),
        is_pinned=source.flag("is_starred"),
        shown=source.text("current_leaf_message_uuid"),
        left_out=source.left_out,
    )
    before: str | None = None
    for number, message in enumerate(source.objects("chat_messages")):
        key = message.text("uuid") or str(number)
        # Exports of before 2025 have no parents: their messages follow each other.
        parent = message.text("parent_message_uuid") or before
        conversation.nodes[key] = Node(parent, _messages(key, message, files))
        before = key
    return conversation


def _messages(key: str, source: Fields, files: Files) -> list[SourceMessage]:
    time = source.time("created_at", "updated_at")
    attached = _files(source, files)
    match source.text("sender"):
        case "human":
            text = _text(source)
            if not (text or attached):
                return []
            return [SourceMessage("user", text, time=time, files=attached)]
        case "assistant":
            reply = ReplyBuilder(key, time=time)
            for block in source.objects("content"):
                _add(block, reply)
            if not reply.messages:
                reply.text(source.text("text"))
            reply.files(attached, source.left_out)
            return reply.messages
        case sender:
            source.leave_out("message of the role", sender)
            return []


def _text(source: Fields) -> str:
    texts = []
    for block in source.objects("content"):
        if (kind := block.text("type")) == "text":
            texts.append(block.text("text"))
        else:
            block.leave_out("content of the type", kind)
    return "\n\n".join(filter(None, texts)) or source.text("text")


def _add(block: Fields, reply: ReplyBuilder) -> None:
    match block.text("type"):
        case "text":
            reply.text(block.text("text"))
        case "thinking":
            reply.thinking(block.text("thinking"))
        case "tool_use":
            reply.call(block.text("name"), block.values.get("input"), block.text("id"))
        case "tool_result":
            text = text_of_parts(block.values.get("content"), block.left_out)
            reply.result(text, block.text("tool_use_id"), block.text("name"))
        case "token_budget":
            pass
        case kind:
            block.leave_out("content of the type", kind)


def _files(source: Fields, files: Files) -> list[SourceFile]:
    taken = []
    for each in source.objects("attachments"):
        if text := each.text("extracted_content"):
            taken.append(file_of_text(text, each.text("file_name")))
        else:
            source.left_out["file that is not in the export"] += 1
    for each in source.objects("files"):
        file = files.find(each.text("file_uuid", "uuid"))
        if file is None:
            source.left_out["file that is not in the export"] += 1
        else:
            taken.append(replace(file, name=each.text("file_name") or file.name))
    return taken
