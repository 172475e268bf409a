"""Messages and requests in Ollama's terms."""

from __future__ import annotations

import json

import pytest

from mochi_server.ollama.types import as_arguments, as_duration, chat_body, chat_messages
from mochi_server.protocol.completions import ModelRequest
from mochi_server.protocol.response_format import JsonSchemaFormat


def body(options=None, keep_alive=None, **fields):
    request = ModelRequest(**{"model": "m", "messages": [], **fields})
    return json.loads(chat_body(request, options=options or {}, keep_alive=keep_alive))


def test_the_least_request_says_what_must_not_be_left_to_the_server():
    assert body() == {
        "model": "m",
        "messages": [],
        "stream": True,
        "think": False,
        "truncate": False,
    }


def test_everything_that_is_asked_for_is_sent():
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    sent = body(
        tools=[tool],
        think="high",
        num_ctx=8192,
        max_tokens=100,
        options={"temperature": 0.0},
        response_format=JsonSchemaFormat.of({"type": "object"}),
        keep_alive="5m",
    )
    assert sent == {
        "model": "m",
        "messages": [],
        "stream": True,
        "think": "high",
        "truncate": False,
        "tools": [tool],
        "format": {"type": "object"},
        "options": {"num_ctx": 8192, "num_predict": 100, "temperature": 0.0},
        "keep_alive": "5m",
    }


@pytest.mark.parametrize(
    ("setting", "sent"), [("300", 300), ("-1", -1), ("0", 0), ("1.5", 1.5), ("-1m", "-1m")]
)
def test_seconds_are_sent_as_a_number(setting, sent):
    assert as_duration(setting) == sent
    assert type(as_duration(setting)) is type(sent)


def test_only_what_the_model_needs_of_a_message_is_sent():
    stored = [
        {"role": "system", "content": "Be kind.", "source_file": "a.md", "message_id": "1"},
        {"role": "user", "content": "Hi", "timestamp": "2026", "images": ["aGk="]},
        {
            "role": "assistant",
            "content": "",
            "model": "m",
            "thinking": "hm",
            "eval_count": 1,
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}, "id": "call_1"}],
            "provider_data": {},
        },
        {"role": "tool", "content": "7", "tool_name": "f", "tool_call_id": "call_1"},
    ]
    assert chat_messages(stored) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi", "images": ["aGk="]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": {"x": 1}}}],
        },
        {"role": "tool", "content": "7", "tool_name": "f", "tool_call_id": "call_1"},
    ]


def test_messages_of_old_files_are_mended():
    """Nulls, calls without ids, arguments as text, no content."""
    stored = [
        {"role": "user", "content": None},
        {
            "role": "assistant",
            "content": "a",
            "thinking": None,
            "tool_calls": [
                {"function": {"name": "f", "arguments": '{"x": 1}'}},
                {"function": {"name": "g", "arguments": "text"}},
                {"function": {"name": ""}},
                {"function": None},
                "odd",
            ],
        },
        {"role": "tool", "content": "7", "tool_name": "f", "tool_call_id": None},
        {"role": "assistant", "content": "", "tool_calls": None},
    ]
    assert chat_messages(stored) == [
        {"role": "user", "content": ""},
        {
            "role": "assistant",
            "content": "a",
            "tool_calls": [
                {"function": {"name": "f", "arguments": {"x": 1}}},
                {"function": {"name": "g", "arguments": {"input": "text"}}},
            ],
        },
        {"role": "tool", "content": "7", "tool_name": "f"},
        {"role": "assistant", "content": ""},
    ]


def test_what_says_nothing_to_a_model_is_left_out():
    stored = [
        {"role": "narrator", "content": "x"},
        {"content": "no role"},
        {"role": "assistant", "content": "", "interrupted": True, "thinking": "hm"},
        {"role": "assistant", "content": "half", "interrupted": True},
    ]
    assert chat_messages(stored) == [{"role": "assistant", "content": "half"}]


def test_half_a_surrogate_pair_can_be_sent():
    request = ModelRequest(model="m", messages=[{"role": "user", "content": "\ud83d"}])
    sent = chat_body(request, options={})
    assert b'"\\ud83d"' in sent


@pytest.mark.parametrize(
    ("given_", "read_as"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ('{"a": "1\n2"}', {"a": "1\n2"}),
        ("null", {}),
        ("not json", {"input": "not json"}),
        ("[]", {"input": []}),
        ("[1]", {"input": [1]}),
        ([1], {"input": [1]}),
    ],
)
def test_arguments_are_always_an_object(given_, read_as):
    assert as_arguments(given_) == read_as
