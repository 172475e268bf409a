"""Chats of Open WebUI, as it exports all of them, or one."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ....core.json_text import value_of
from ..conversation import (
    Files,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    file_of_data_url,
    file_of_text,
    text_of_parts,
)
from ..fields import Fields, LeftOut, as_object

NAME = "Open WebUI"

_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")
_FENCED: Final = re.compile(r"\s*```(\w*)\n(.*?)\n?```\s*", re.DOTALL)
_OPENING, _CLOSING = '<details type="', "</details>"


def recognises(value: dict[str, Any]) -> bool:
    return "history" in value or "history" in as_object(value.get("chat"))


def read(source: Fields, files: Files) -> SourceConversation:
    chat = source.object("chat") if "chat" in source.values else source
    conversation = SourceConversation(
        program="open_webui",
        source_id=source.text("id") or chat.text("id"),
        title=source.text("title") or chat.text("title"),
        created_at=source.time("created_at") or chat.time("timestamp"),
        updated_at=source.time("updated_at") or chat.time("timestamp"),
        model=next(chat.texts("models"), ""),
        system_prompt=chat.text("system") or chat.object("params").text("system"),
        tags=[*source.object("meta").texts("tags")],
        is_archived=source.flag("archived"),
        is_pinned=source.flag("pinned"),
        shown=chat.object("history").text("currentId"),
        left_out=source.left_out,
    )
    for key, message in chat.object("history").object("messages").items():
        messages = _messages(key, message, files)
        conversation.nodes[key] = Node(message.text("parentId") or None, messages)
    return conversation


def _messages(key: str, source: Fields, files: Files) -> list[SourceMessage]:
    time = source.time("timestamp")
    match source.text("role"):
        case "user":
            attached = [*_files(source, files)]
            return [SourceMessage("user", source.text("content"), time=time, files=attached)]
        case "assistant":
            reply = ReplyBuilder(key, source.text("model"), time)
            for item in source.objects("output"):
                _add(item, reply)
            if not reply.messages:
                _add_content(source.text("content"), reply, source.left_out)
            reply.files([*_files(source, files)], source.left_out)
            if sources := source.list("sources"):
                source.left_out["source of a reply"] += len(sources)
            return reply.messages
        case "system":
            source.left_out["system message"] += 1
            return []
        case role:
            source.leave_out("message of the role", role)
            return []


def _add(item: Fields, reply: ReplyBuilder) -> None:
    match item.text("type"):
        case "message":
            reply.text(_text(item, "content"))
        case "reasoning":
            reply.thinking(_text(item, "content") or _text(item, "summary"))
        case "function_call":
            reply.call(item.text("name"), item.values.get("arguments"), item.text("call_id"))
        case "function_call_output":
            text = text_of_parts(item.values.get("output"), item.left_out)
            reply.result(text, item.text("call_id"))
        case "open_webui:code_interpreter":
            code, output = item.text("code"), item.values.get("output")
            _add_code(code, item.text("lang"), output, reply, item.left_out)
        case kind:
            item.leave_out("content of the type", kind)


def _text(item: Fields, key: str) -> str:
    return text_of_parts(item.values.get(key), item.left_out, "reply")


def _add_code(
    code: str, language: str, output: object, reply: ReplyBuilder, left_out: LeftOut
) -> None:
    """Add code that the program has run as a call of a tool, with its output."""
    call_id = reply.call("code_interpreter", {"code": code, "language": language or "python"})
    parts = [output]
    if isinstance(output, dict):
        printed = Fields(output, left_out)
        parts = [printed.text(key) for key in ("stdout", "result", "stderr")]
        if files := printed.list("files"):
            left_out["file in a reply of a model"] += len(files)
    if text := text_of_parts(parts, left_out):
        reply.result(text, call_id, "code_interpreter")


def _add_content(content: str, reply: ReplyBuilder, left_out: LeftOut) -> None:
    """Read a text in which thinking and calls are marked up."""
    for markup, text in _split(content):
        attributes = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(markup)}
        body = html.unescape(_SUMMARY.sub("", text, count=1)).strip()
        match attributes.get("type"):
            case None:
                reply.text(text.strip())
            case "reasoning":
                lines = (line.removeprefix("> ").removeprefix(">") for line in body.split("\n"))
                reply.thinking("\n".join(lines))
            case "tool_calls":
                name = attributes.get("name", "")
                arguments = _unquoted(attributes.get("arguments", ""))
                call_id = reply.call(name, arguments, attributes.get("id", ""))
                reply.result(_unquoted(attributes.get("result", "")), call_id)
                if len(attributes.get("files", "")) > len("[]"):
                    left_out["files in a reply of a model"] += 1
            case "code_interpreter":
                fenced = _FENCED.fullmatch(_SUMMARY.sub("", text, count=1))
                language, code = fenced.groups() if fenced else ("", body)
                output = value_of(attributes.get("output", ""))
                _add_code(code, language, output, reply, left_out)
            case kind:
                reply.text(body)
                left_out[f"markup of the type {kind[:40]}"] += 1


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
    value = value_of(text)
    return value if isinstance(value, str) else text


def _files(source: Fields, files: Files) -> Iterator[SourceFile]:
    for each in source.objects("files"):
        name, url = each.text("name"), each.text("url")
        if text := each.object("file").object("data").text("content"):
            yield file_of_text(text, name)
        elif file := file_of_data_url(url, name) or files.find(each.text("id") or url):
            yield replace(file, name=name or file.name)
        else:
            kind = "image" if each.text("type") == "image" else "file"
            source.left_out[f"{kind} that is not in the export"] += 1
