"""Conversations of ChatGPT: ``conversations.json``, alone or in the archive of an export."""

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
)

NAME = "ChatGPT"

_NOT_TAKEN = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "memory of the program",
    "reasoning_recap": "recap of thinking",
}
_TEXT_KEYS = ("text", "result", "content")
"""Where other kinds of content have their text."""


def recognises(value: dict[str, Any]) -> bool:
    return "mapping" in value


def read(source: Fields, files: Files) -> SourceConversation:
    conversation = SourceConversation(
        program="chatgpt",
        source_id=source.any_text("conversation_id", "id"),
        place=source.place,
        title=source.text("title"),
        created_at=source.time("create_time"),
        updated_at=source.time("update_time"),
        model=source.any_text("default_model_slug"),
        is_archived=source.values.get("is_archived") is True,
        is_pinned=source.values.get("is_starred") is True,
        shown=source.text("current_node"),
    )
    for key, node in source.object("mapping").items():
        message = node.values.get("message")
        messages = []
        if message is not None:
            messages = _messages(key, node.object("message"), files, conversation.left_out)
        conversation.nodes[key] = Node(node.text("parent") or None, messages)
    return conversation


def _messages(key: str, source: Fields, files: Files, left_out: LeftOut) -> list[SourceMessage]:
    content, metadata = source.object("content"), source.object("metadata")
    kind = content.text("content_type")
    if kind in _NOT_TAKEN:
        left_out[_NOT_TAKEN[kind]] += 1
        return []
    thinking = _thoughts(content) if kind == "thoughts" else ""
    text, attached = ("", []) if thinking else _content(content, kind, files, left_out)
    if not (text or attached or thinking):
        return []
    author = source.object("author")
    role = author.text("role")
    if role == "system" or metadata.values.get("is_visually_hidden_from_conversation") is True:
        left_out["hidden message"] += 1
        return []
    time = source.time("create_time")
    if role == "user":
        attached += _uploads(metadata, attached, files, left_out)
        return [SourceMessage("user", text, time=time, files=attached)]
    if role == "tool":
        return [
            SourceMessage("tool", text, tool_name=author.text("name"), time=time, files=attached)
        ]
    if role != "assistant":
        raise CannotImport(f"the role {role[:40]!r} is unknown", place=author.at("role"))
    reply = ReplyBuilder(key, metadata.any_text("model_slug"), time)
    reply.thinking(thinking)
    recipient = source.text("recipient")
    if recipient in {"", "all"}:
        reply.text(text)
    else:
        reply.call(recipient, text, key)
    reply.files(attached, left_out)
    return reply.messages


def _thoughts(content: Fields) -> str:
    thoughts = (each.any_text("content", "summary") for each in content.objects("thoughts"))
    return "\n\n".join(filter(None, thoughts))


def _content(
    content: Fields, kind: str, files: Files, left_out: LeftOut
) -> tuple[str, list[SourceFile]]:
    if "parts" not in content.values:
        text = content.any_text(*_TEXT_KEYS)
        if not text:
            left_out[f"content of the type {kind[:40] or 'unknown'}"] += 1
        return text, []
    texts, attached = [], []
    for part in content.list("parts"):
        if isinstance(part, str):
            texts.append(part)
            continue
        part_kind = part.get("content_type") if isinstance(part, dict) else None
        if part_kind == "image_asset_pointer":
            file = files.find(_file_id(str(part.get("asset_pointer"))))
            if file is None:
                left_out["image that is not in the export"] += 1
            else:
                attached.append(file)
        elif part_kind == "audio_transcription" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            left_out[f"content of the type {str(part_kind or 'unknown')[:40]}"] += 1
    return "\n\n".join(filter(None, texts)), attached


def _file_id(pointer: str) -> str:
    return pointer.rpartition("://")[2].split("#")[0].split("?")[0]


def _uploads(
    metadata: Fields, taken: list[SourceFile], files: Files, left_out: LeftOut
) -> list[SourceFile]:
    """Return the files of a message that are no images of its content."""
    uploads = []
    for each in metadata.objects("attachments"):
        file = files.find(each.any_text("id"))
        if file is None and not each.any_text("mime_type", "mimeType").startswith("image/"):
            left_out["file that is not in the export"] += 1
        elif file is not None and all(file.name != other.name for other in taken):
            uploads.append(file)
    return uploads
