"""Conversations of Claude: ``conversations.json``, alone or in the archive of an export."""

from __future__ import annotations

from typing import Any

from ....errors import CannotImport
from ..conversation import (
    Fields,
    Files,
    LeftOut,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    file_of_text,
    text_of_parts,
)

NAME = "Claude"


def recognises(value: dict[str, Any]) -> bool:
    return "chat_messages" in value


def read(source: Fields, files: Files) -> SourceConversation:
    conversation = SourceConversation(
        program="claude",
        source_id=source.any_text("uuid"),
        place=source.place,
        title=source.text("name"),
        created_at=source.time("created_at"),
        updated_at=source.time("updated_at"),
        model=source.any_text("model"),
        is_pinned=source.values.get("is_starred") is True,
        shown=source.any_text("current_leaf_message_uuid"),
    )
    before: str | None = None
    for number, message in enumerate(source.objects("chat_messages")):
        key = message.any_text("uuid") or str(number)
        messages = _messages(key, message, files, conversation.left_out)
        # Exports of before 2025 have no parents: their messages follow each other.
        parent = message.any_text("parent_message_uuid") or before
        conversation.nodes[key] = Node(parent, messages)
        before = key
    return conversation


def _messages(key: str, source: Fields, files: Files, left_out: LeftOut) -> list[SourceMessage]:
    time = source.time("created_at", "updated_at")
    match source.text("sender"):
        case "human":
            text = _text(source, left_out)
            attached = _files(source, files, left_out)
            if not (text or attached):
                return []
            return [SourceMessage("user", text, time=time, files=attached)]
        case "assistant":
            reply = ReplyBuilder(key, time=time)
            for block in source.objects("content"):
                _add(block, reply, left_out)
            if not reply.messages:
                reply.text(source.text("text"))
            return reply.messages
        case sender:
            raise CannotImport(f"the sender {sender[:40]!r} is unknown", place=source.at("sender"))


def _text(source: Fields, left_out: LeftOut) -> str:
    texts = []
    for block in source.objects("content"):
        if block.text("type") == "text":
            texts.append(block.text("text"))
        else:
            left_out[f"content of the type {block.text('type')[:40]}"] += 1
    return "\n\n".join(filter(None, texts)) or source.text("text")


def _add(block: Fields, reply: ReplyBuilder, left_out: LeftOut) -> None:
    match block.text("type"):
        case "text":
            reply.text(block.text("text"))
        case "thinking":
            reply.thinking(block.text("thinking"))
        case "tool_use":
            reply.call(block.text("name"), block.values.get("input"), block.any_text("id"))
        case "tool_result":
            content = block.values.get("content")
            parts = content if isinstance(content, list) else [content or ""]
            reply.result(
                text_of_parts(parts, left_out),
                block.any_text("tool_use_id"),
                block.any_text("name"),
            )
        case "token_budget":
            pass
        case kind:
            left_out[f"content of the type {kind[:40]}"] += 1


def _files(source: Fields, files: Files, left_out: LeftOut) -> list[SourceFile]:
    taken = []
    for each in source.objects("attachments"):
        if text := each.any_text("extracted_content"):
            taken.append(file_of_text(text, each.any_text("file_name")))
        else:
            left_out["file that is not in the export"] += 1
    for each in source.objects("files"):
        file = files.find(each.any_text("file_uuid", "uuid"))
        if file is None:
            left_out["file that is not in the export"] += 1
        else:
            taken.append(file)
    return taken
