"""One odd part in every position of every format: it costs itself, and is counted."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from tests.support.imports import Imports

ODD: tuple[Any, ...] = (None, 7, "odd", ["odd"], {"type": "odd", "odd": 1})
WORD = re.compile(r"[a-z]\d-[a-z]+")
"""What a message says, such as ``m2-text``: it begins with the key of the message."""


def node(key, parent, role, parts, **message):
    body = {
        "author": {"role": role, "name": "browser"}, "create_time": 1700000000.5,
        "content": {"content_type": "text", "parts": parts}, "recipient": "all",
        "metadata": {"model_slug": "gpt", "attachments": [{"id": "file-a"}],
                     "content_references": [{"matched_text": "\ue200x\ue201", "alt": "x"}]},
        **message,
    }  # fmt: skip
    return {"id": key, "parent": parent, "children": [], "message": body}


CHATGPT = {
    "title": "Title", "create_time": 1700000000, "update_time": 1700000000.5,
    "conversation_id": "c", "current_node": "m5", "is_archived": False,
    "default_model_slug": "gpt",
    "mapping": {
        "m0": {"id": "m0", "parent": None, "message": None},
        "m1": node("m1", "m0", "user", ["m1-text", {"content_type": "audio_transcription",
                                                  "text": "m1-audio"}]),
        "m2": node("m2", "m1", "assistant", [], content={
            "content_type": "thoughts", "thoughts": [{"summary": "s", "content": "m2-thought"}]}),
        "m3": node("m3", "m2", "assistant", [], recipient="browser", content={
            "content_type": "code", "text": "m3-code"}),
        "m4": node("m4", "m3", "tool", ["m4-result"]),
        "m5": node("m5", "m4", "assistant", ["m5-text \ue200x\ue201"]),
        "m6": node("m6", "m4", "assistant", ["m6-text"]),
    },
}  # fmt: skip


def block(kind, **fields):
    return {"type": kind, **fields}


def said(key, sender, parent, *content, **more):
    return {
        "uuid": key, "sender": sender, "parent_message_uuid": parent, "content": list(content),
        "text": "", "created_at": "2025-01-01T00:00:01Z", "files": [{"file_uuid": "f"}],
        "attachments": [], **more,
    }  # fmt: skip


CLAUDE = {
    "uuid": "c", "name": "Title", "created_at": "2025-01-01T00:00:00Z", "is_starred": True,
    "current_leaf_message_uuid": "m2", "model": "claude",
    "chat_messages": [
        said("m1", "human", None, block("text", text="m1-text"),
             attachments=[{"file_name": "m1-name", "extracted_content": "note"}]),
        said("m2", "assistant", "m1", block("thinking", thinking="m2-thought"),
             block("tool_use", name="m2-tool", input={"city": "m2-city"}, id="m2-call"),
             block("tool_result", content=[{"type": "text", "text": "m2-result"}, "m2-more"],
                   tool_use_id="m2-call", name="m2-tool"),
             block("text", text="m2-text")),
        said("m3", "assistant", "m1", text="m3-text"),
        said("m4", "human", "m3", text="m4-text"),
    ],
}  # fmt: skip


def chat(key, parent, role, content, **more):
    return {"id": key, "parentId": parent, "role": role, "content": content,
            "timestamp": 1700000000, "model": "qwen", **more}  # fmt: skip


MARKUP = (
    '<details type="reasoning"><summary>s</summary>\n&gt; m3-thought</details>\n'
    '<details type="tool_calls" id="c1" name="m3-tool" arguments="{}" result="m3-result">'
    "</details>\nm3-text"
)
OPEN_WEBUI = {
    "id": "c", "title": "Title", "archived": False, "created_at": 1700000000,
    "meta": {"tags": ["a"]},
    "chat": {
        "title": "Title", "models": ["qwen"], "params": {"system": "s0-prompt"},
        "history": {"currentId": "m4", "messages": {
            "m1": chat("m1", None, "user", "m1-text", files=[
                {"type": "file", "name": "m1-name", "file": {"data": {"content": "note"}}},
                {"type": "image", "url": "/1"}]),
            "m2": chat("m2", "m1", "assistant", "", sources=[{}], output=[
                {"type": "reasoning", "content": [{"type": "output_text", "text": "m2-thought"}]},
                {"type": "function_call", "call_id": "c1", "name": "m2-tool",
                 "arguments": '{"city": "m2-city"}'},
                {"type": "function_call_output", "call_id": "c1",
                 "output": [{"type": "input_text", "text": "m2-result"}]},
                {"type": "open_webui:code_interpreter", "code": "m2-code", "lang": "python",
                 "output": {"stdout": "m2-out"}},
                {"type": "message", "content": [{"type": "output_text", "text": "m2-text"}]}]),
            "m3": chat("m3", "m1", "assistant", MARKUP),
            "m4": chat("m4", "m3", "user", "m4-text"),
        }},
    },
}  # fmt: skip


def libre(key, parent, text="", *, mine=False, **more):
    return {"messageId": key, "parentMessageId": parent, "text": text, "isCreatedByUser": mine,
            "model": "gpt", "createdAt": "2024-05-28T18:08:55.014Z", "error": False,
            **more}  # fmt: skip


LIBRECHAT = {
    "conversationId": "c", "title": "Title",
    "options": {"model": "gpt", "promptPrefix": "s0-prompt"},
    "messages": [
        libre("m1", None, "m1-text", mine=True, files=[{"filename": "a.txt", "type": "text"}]),
        libre("m2", "m1", unfinished=True, content=[
            {"type": "think", "think": "m2-thought"},
            {"type": "tool_call", "tool_call": {"id": "c1", "name": "m2-tool",
             "args": '{"city": "m2-city"}', "output": "m2-result"}},
            {"type": "text", "text": {"value": "m2-text"}}]),
        libre("m3", "m1", "m3-text", children=[libre("m4", None, "m4-text", mine=True)]),
    ],
}  # fmt: skip


def response(key, sender, parent, text, **more):
    return {"response": {"_id": key, "sender": sender, "message": text, "model": "grok",
                         "create_time": {"$date": {"$numberLong": "1700000000123"}},
                         "parent_response_id": parent, **more}}  # fmt: skip


GROK = {
    "conversation": {"id": "c", "title": "Title", "create_time": "2025-06-21T19:28:21Z"},
    "responses": [
        response("m1", "human", None, "m1-text", file_attachments=["x"]),
        response("m2", "ASSISTANT", "m1", "m2-text", thinking_trace="m2-thought"),
        response("m3", "assistant", "m1", "m3-text",
                 metadata={"requestModelDetails": {"modelId": "grok"}}),
    ],
}  # fmt: skip

CHAT_MESSAGES = {
    "id": "c", "model": "gpt", "title": "Title",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s0-prompt"}]},
        {"role": "user", "content": [{"type": "text", "text": "m1-text"}, "m1-more",
                                     {"type": "image_url", "image_url": {"url": "http://x"}}]},
        {"role": "assistant", "content": None, "reasoning": "m2-thought", "tool_calls": [
            {"id": "c1", "function": {"name": "m2-tool", "arguments": '{"a": "m2-city"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "m3-result"},
        {"role": "assistant", "content": "m4-text", "timestamp": "2025-01-01T00:00:00Z"},
    ],
}  # fmt: skip

SAMPLES = {
    "chatgpt": CHATGPT, "claude": CLAUDE, "open_webui": OPEN_WEBUI, "librechat": LIBRECHAT,
    "grok": GROK, "chat_messages": CHAT_MESSAGES,
}  # fmt: skip


def places(value, path=()):
    """The paths of all values in another one."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(sample, path, odd):
    """The sample with another value at a place, and the one that was there."""
    *way, last = path
    result = copy.deepcopy(sample)
    inner = result
    for key in way:
        inner = inner[key]
    before, inner[last] = inner[last], odd
    return result, before


def with_one_more(sample, path, odd):
    """The sample with one more element in the list at a place, or without one None."""
    result, before = changed(sample, path, None)
    return changed(result, path, [odd, *before])[0] if isinstance(before, list) else None


async def taken(imports: Imports, content) -> tuple[set[str], Any]:
    """The words of all sessions that the export has become, and the report."""
    report = await imports.run(content)
    text = ""
    for each in report.sessions:
        text += json.dumps((await imports.sessions.get(each.session_id)).stored_messages())
        await imports.sessions.delete(each.session_id)
    return {*WORD.findall(text), *(["odd"] if "odd" in text else [])}, report


def message_of(path, sample):
    """The key of the message that a place belongs to; "" above the messages."""
    inner, key = sample, ""
    for step in path:
        inner = inner[step]
        words = {word[:2] for word in WORD.findall(json.dumps(inner))}
        if len(words) == 1:
            return words.pop()
        if isinstance(step, str) and re.fullmatch(r"m\d", step):
            return step
        key = ""
    return key


@pytest.mark.parametrize("name", SAMPLES)
async def test_an_odd_part_costs_no_other_and_is_counted(imports_in_memory, name):
    sample = SAMPLES[name]
    words, report = await taken(imports_in_memory, sample)
    assert not report.problems
    said_in_sample = {*WORD.findall(json.dumps(sample))}
    assert words == said_in_sample
    usual = report.left_out
    for path in places(sample):
        key = message_of(path, sample)
        for odd in ODD:
            content, before = changed(sample, path, odd)
            rest, report = await taken(imports_in_memory, content)
            lost = words - rest
            where = f"{odd!r} at {path}: lost {lost}, {report.left_out}, {report.problems}"
            own = {word for word in words if key and word.startswith(key)}
            own |= {*WORD.findall(json.dumps(before))}
            own |= {"s0-prompt"} if not report.sessions else set()
            assert lost <= own, where
            is_counted = report.left_out - usual or report.problems
            assert is_counted or not lost or is_no_loss(odd, path, rest), where
            if (more := with_one_more(sample, path, odd)) is not None:
                rest, report = await taken(imports_in_memory, more)
                assert words <= rest, f"{odd!r} in {path}: lost {words - rest}"


def is_no_loss(odd, path, rest):
    """Whether nothing was put there, or what is taken, or an object in which all fields miss."""
    is_nothing = odd is None or (isinstance(odd, dict) and isinstance(path[-1], str))
    return is_nothing or odd == 7 or "odd" in rest
