"""Conversations of ChatGPT: ``conversations.json``, alone or in the archive of an export."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from ..conversation import Files, Node, ReplyBuilder, SourceConversation, SourceFile, SourceMessage
from ..fields import Fields, as_object

NAME = "ChatGPT"

_NOT_TAKEN = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "memory of the program",
    "reasoning_recap": "recap of thinking",
}
_TEXT_KEYS = ("text", "result", "content")
"""Where other kinds of content have their text."""
_MARK: Final = re.compile(
    " ?(\ue200[^\ue200\ue201]*\ue201|\u3010[^\u3010\u3011]*\u3011)|[\ue200-\ue204]"
)
"""What stands for a citation, or for what the program shows in another form."""


def recognises(value: dict[str, Any]) -> bool:
    return "mapping" in value


def read(source: Fields, files: Files) -> SourceConversation:
    conversation = SourceConversation(
        program="chatgpt",
        source_id=source.text("conversation_id", "id"),
        title=source.text("title"),
        created_at=source.time("create_time"),
        updated_at=source.time("update_time"),
        model=source.text("default_model_slug"),
        is_archived=source.flag("is_archived"),
        is_pinned=source.flag("is_starred"),
        shown=source.text("current_node"),
        left_out=source.left_out,
    )
    for key, node in source.object("mapping").items():
        message = node.object("message")
        messages = _messages(key, message, files) if message.values else []
        conversation.nodes[key] = Node(node.text("parent") or None, messages)
    return conversation


def _messages(key: str, source: Fields, files: Files) -> list[SourceMessage]:
    content, metadata = source.object("content"), source.object("metadata")
    kind = content.text("content_type")
    if kind in _NOT_TAKEN:
        source.left_out[_NOT_TAKEN[kind]] += 1
        return []
    thinking = _thoughts(content) if kind == "thoughts" else ""
    text, images = ("", {}) if thinking else _content(content, kind, files)
    attached = _attached(images, metadata, files)
    if not (text or attached or thinking):
        return []
    author, time = source.object("author"), source.time("create_time")
    role = author.text("role")
    if metadata.flag("is_visually_hidden_from_conversation"):
        role = "system"
    message = SourceMessage("user", _without_marks(text, metadata), time=time, files=attached)
    match role:
        case "user":
            return [message]
        case "tool":
            return [replace(message, role="tool", tool_name=author.text("name"))]
        case "assistant":
            reply = ReplyBuilder(key, metadata.text("model_slug"), time)
            reply.thinking(_without_marks(thinking, metadata))
            recipient = source.text("recipient")
            if recipient in {"", "all"}:
                reply.text(message.text)
            else:
                reply.call(recipient, message.text, key)
            reply.files(attached, source.left_out)
            return reply.messages
        case "system":
            source.left_out["hidden message"] += 1
        case _:
            source.leave_out("message of the role", role)
    return []


def _without_marks(text: str, metadata: Fields) -> str:
    """Return a text with what the program shows in place of its marks for citations."""
    shown = {
        reference.text("matched_text"): reference.text("alt")
        for reference in metadata.objects("content_references")
    }

    def replaced(match: re.Match[str]) -> str:
        mark = match[1]
        if mark is None:
            return ""
        if text := shown.get(mark):
            return match[0].replace(mark, text)
        if mark.startswith("\u3010"):  # such brackets are also written by people
            return match[0]
        metadata.left_out["citation without a text"] += 1
        return ""

    return _MARK.sub(replaced, text)


def _thoughts(content: Fields) -> str:
    thoughts = (each.text("content", "summary") for each in content.objects("thoughts"))
    return "\n\n".join(filter(None, thoughts))


def _content(content: Fields, kind: str, files: Files) -> tuple[str, dict[str, SourceFile | None]]:
    """Return the text and, by their ids, the images."""
    if "parts" not in content.values:
        text = content.text(*_TEXT_KEYS)
        if content.values and not text:
            content.leave_out("content of the type", kind)
        return text, {}
    texts: list[str] = []
    images: dict[str, SourceFile | None] = {}
    for value in content.list("parts"):
        part = Fields(as_object(value), content.left_out)
        part_kind = part.text("content_type")
        if isinstance(value, str):
            texts.append(value)
        elif part_kind == "image_asset_pointer":
            file_id = part.text("asset_pointer").rpartition("://")[2].split("#")[0].split("?")[0]
            images[file_id] = files.find(file_id)
        elif part_kind == "audio_transcription" and part.text("text"):
            texts.append(part.text("text"))
        else:
            part.leave_out("content of the type", part_kind)
    if missing := sum(file is None for file in images.values()):
        content.left_out["image that is not in the export"] += missing
    return "\n\n".join(filter(None, texts)), images


def _attached(
    images: dict[str, SourceFile | None], metadata: Fields, files: Files
) -> list[SourceFile]:
    """Return the files of a message: the images of its content, and what was uploaded."""
    attached = dict(images)
    for upload in metadata.objects("attachments"):
        file_id = upload.text("id")
        file = files.find(file_id)
        if file is not None:
            attached[file_id] = replace(file, name=upload.text("name") or file.name)
        elif file_id not in images:
            is_image = upload.text("mime_type", "mimeType").startswith("image/")
            kind = "image" if is_image else "file"
            metadata.left_out[f"{kind} that is not in the export"] += 1
    return [file for file in attached.values() if file is not None]
