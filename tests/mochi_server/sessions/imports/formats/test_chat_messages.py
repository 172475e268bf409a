"""Messages as OpenAI's API has them."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from tests.support.images import png

LINES = b"""{"role": "system", "content": "Be kind."}

{"role": "user", "content": "Hi", "message_id": "0a1b2c3d4e", "timestamp": "2025-01-01T00:00:00Z"}\r
{"role": "assistant", "content": "Hello", "model": "theirs"}
"""


async def test_a_conversation_is_taken_with_calls_parts_and_images(imports):
    url = f"data:image/png;base64,{b64encode(png()).decode()}"
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    report = await imports.run({
        "model": "gpt-4o",
        "tools": [{"type": "function"}],
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "name": "Ann", "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
                {"type": "input_audio", "input_audio": {}},
            ]},
            {"role": "assistant", "content": None, "tool_calls": [call], "weight": 1},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "assistant", "content": "Three", "reasoning_content": "Hm."},
            {"role": "system", "content": "Now be brief."},
        ],
    })  # fmt: skip
    [session] = report.sessions
    stored = {"function": {"name": "add", "arguments": {"a": 1}}, "id": "c1"}
    assert await imports.said(session.session_id) == [
        ("system", "Be kind."),
        ("user", "What is it?"),
        ("assistant", "", {"tool_calls": [stored]}),
        ("tool", "3", {"tool_name": "add", "tool_call_id": "c1"}),
        ("assistant", "Three", {"thinking": "Hm."}),
    ]
    assert (await imports.metadata(session.session_id))["model"] == "gpt-4o"
    [image] = (await imports.messages(session.session_id))[1]["attachments"]
    assert image["media_type"] == "image/png"
    assert report.left_out == {
        "content of the type input_audio": 1,
        "definition of a tool": 1,
        "image that is not in the export": 1,
        "system message that is not the first one": 1,
        "unknown field of a message": 1,
    }


async def test_each_line_of_a_training_file_is_a_session(imports):
    lines = [
        {"messages": [{"role": "user", "content": str(number)}]} for number in (1, 2, 1, "critic")
    ]
    lines[3]["messages"][0]["role"] = "critic"
    content = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n{torn"
    report = await imports.run(content)
    assert [each.outcome for each in report.sessions] == ["created", "created", "unchanged"]
    first, second = report.problems
    assert first.message == (
        "chat_messages: line 4: no message of it can be taken (1 \u00d7 message of the role critic)"
    )
    assert second.message.startswith("chat messages: line 5: not valid JSON")


async def test_lines_of_messages_become_one_session(imports):
    report = await imports.run(LINES)
    [session] = report.sessions
    assert await imports.said(session.session_id) == [
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "Hello", {"model": "theirs"}),
    ]
    messages = await imports.messages(session.session_id)
    assert all(message["message_id"] and message["timestamp"] for message in messages)
    assert messages[1]["message_id"] == "0a1b2c3d4e"
    assert (await imports.metadata(session.session_id))["model"] == "theirs"
    again = await imports.run(LINES, model="mine")
    assert [each.outcome for each in again.sessions] == ["unchanged"]


async def test_one_line_alone_and_a_list_of_messages_are_sessions_too(imports):
    message = {"role": "user", "content": "Hi"}
    line = await imports.run(json.dumps(message).encode(), model="m")
    listed = await imports.run([message])
    assert (await imports.metadata(line.sessions[0].session_id))["model"] == "m"
    assert listed.sessions[0].session_id == line.sessions[0].session_id
    assert listed.sessions[0].outcome == "unchanged"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"role":"user","content":"a"}\n{"role":', "chat messages: line 2: not valid JSON"),
        (b'{"role":"user"}', "can be taken (1 \u00d7 message without content)"),
        (b'{"messages": {}}', "can be taken (1 \u00d7 messages in an unknown form)"),
        (b'{"messages": [5]}', "can be taken (1 \u00d7 messages in an unknown form)"),
        (b'{"role":"user","content":"a","x":' + b"[" * 900 + b"]" * 900 + b"}", "nested too deep"),
    ],
)
async def test_what_cannot_be_imported_leaves_nothing(imports, content, words):
    report = await imports.run(content)
    assert not report.sessions
    assert words in report.problems[0].message
    assert not imports.files
