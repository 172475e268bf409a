"""Chats of Open WebUI, as it exports all of them, or one."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
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
    as_object,
    file_of_data_url,
    file_of_text,
    text_of_parts,
)

NAME = "Open WebUI"

_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")
_OPENING, _CLOSING = '<details type="', "</details>"


def recognises(value: dict[str, Any]) -> bool:
    return "history" in value or "history" in as_object(value.get("chat"))


def read(source: Fields, files: Files) -> SourceConversation:
    chat = source.object("chat") if "chat" in source.values else source
    models = [model for model in chat.list("models") if isinstance(model, str)]
    tags = source.object("meta").values.get("tags")
    conversation = SourceConversation(
        program="open_webui",
        source_id=source.any_text("id") or chat.any_text("id"),
        place=source.place,
        title=source.any_text("title") or chat.text("title"),
        created_at=source.time("created_at") or chat.time("timestamp"),
        updated_at=source.time("updated_at") or chat.time("timestamp"),
        model=models[0] if models else "",
        system_prompt=chat.any_text("system")
        or str(as_object(chat.values.get("params")).get("system") or ""),
        tags=[tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        is_archived=source.values.get("archived") is True,
        is_pinned=source.values.get("pinned") is True,
        shown=chat.object("history").text("currentId"),
    )
    for key, message in chat.object("history").object("messages").items():
        messages = _messages(key, message, files, conversation.left_out)
        conversation.nodes[key] = Node(message.text("parentId") or None, messages)
    return conversation


def _messages(key: str, source: Fields, files: Files, left_out: LeftOut) -> list[SourceMessage]:
    time = source.time("timestamp")
    match source.text("role"):
        case "user":
            attached = [*_files(source, files, left_out)]
            return [SourceMessage("user", source.text("content"), time=time, files=attached)]
        case "assistant":
            reply = ReplyBuilder(key, source.any_text("model"), time)
            if source.list("output"):
                for item in source.objects("output"):
                    _add(item, reply, left_out)
            else:
                _add_content(source.text("content"), reply)
            reply.files([*_files(source, files, left_out)], left_out)
            return reply.messages
        case "system":
            left_out["system message"] += 1
            return []
        case role:
            raise CannotImport(f"the role {role[:40]!r} is unknown", place=source.at("role"))


def _add(item: Fields, reply: ReplyBuilder, left_out: LeftOut) -> None:
    match item.text("type"):
        case "message":
            reply.text(text_of_parts(item.list("content"), left_out, "reply"))
        case "reasoning":
            reply.thinking(text_of_parts(item.list("content"), left_out, "reply"))
        case "function_call":
            reply.call(item.text("name"), item.values.get("arguments"), item.any_text("call_id"))
        case "function_call_output":
            output = item.values.get("output")
            parts = output if isinstance(output, list) else [output or ""]
            reply.result(text_of_parts(parts, left_out), item.any_text("call_id"))
        case kind:
            left_out[f"content of the type {kind[:40]}"] += 1


def _add_content(content: str, reply: ReplyBuilder) -> None:
    """Read a text in which thinking and calls are marked up."""
    for markup, text in _split(content):
        attributes = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(markup)}
        match attributes.get("type"):
            case "reasoning":
                body = html.unescape(_SUMMARY.sub("", text, count=1)).strip()
                lines = (line.removeprefix("> ").removeprefix(">") for line in body.split("\n"))
                reply.thinking("\n".join(lines))
            case "tool_calls":
                name = attributes.get("name", "")
                arguments = _unquoted(attributes.get("arguments", ""))
                call_id = reply.call(name, arguments, attributes.get("id", ""))
                reply.result(_unquoted(attributes.get("result", "")), call_id)
            case _:
                reply.text(text.strip())


def _split(content: str) -> Iterator[tuple[str, str]]:
    """Yield what is between the tags of each marked part with its opening tag, others with ""."""
    start = 0
    while True:
        begin = content.find(_OPENING, start)
        inner = content.find(">", begin) if begin >= 0 else -1
        end = content.find(_CLOSING, inner) if inner >= 0 else -1
        if end < 0:
            yield "", content[start:]
            return
        yield "", content[start:begin]
        yield content[begin:inner], content[inner + 1 : end]
        start = end + len(_CLOSING)


def _unquoted(text: str) -> str:
    """Return a text that was stored as JSON; others as they are."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _files(source: Fields, files: Files, left_out: LeftOut) -> Iterator[SourceFile]:
    for each in source.objects("files"):
        name, url = each.any_text("name"), each.any_text("url")
        file_id = each.any_text("id") or url
        text = as_object(as_object(each.values.get("file")).get("data")).get("content")
        if isinstance(text, str) and text:
            yield file_of_text(text, name)
        elif (file := file_of_data_url(url, name) or files.find(file_id)) is not None:
            yield file
        else:
            kind = "image" if each.any_text("type") == "image" else "file"
            left_out[f"{kind} that is not in the export"] += 1
