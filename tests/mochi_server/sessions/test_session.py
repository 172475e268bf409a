"""A session in memory."""

import json
from datetime import datetime, timedelta, timezone

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.errors import AttachmentNotFound
from mochi_server.protocol.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UnknownMessage,
    UserMessage,
)
from mochi_server.sessions import ChatSession, SessionMetadata, instant
from mochi_server.sessions.codec import encode
from tests.support.session_files import file_of, session_of


def session(*messages: object) -> ChatSession:
    head = {"session_id": "a", "model": "m", "created_at": "2026-01-01T00:00:00Z"}
    return session_of(json.dumps({"metadata": head, "messages": messages}).encode())


SYSTEM = {"role": "system", "content": "Be kind.", "source_file": "kind.md"}
FIRST = {"role": "user", "content": "Hi", "message_id": "1", "timestamp": "2026-01-01T00:00:00"}
REPLY = {"role": "assistant", "content": "Hello", "eval_count": 1}
SECOND = {"role": "user", "content": "Bye", "message_id": "2"}


def test_the_file_has_the_documented_keys_in_their_order_and_a_line_for_each_message():
    made = ChatSession(SessionMetadata(session_id="a", model="m", created_at="x", updated_at="y"))
    made.set_system_prompt("Be kind.", "kind.md")
    made.append(UserMessage(content="Hi"), AssistantMessage(content="Hello", model="m"))
    made.append(ToolMessage(content="5", tool_name="add", tool_call_id="call_1"))

    text = file_of(made).decode()
    content = json.loads(text)

    assert list(content) == ["metadata", "messages"]
    assert list(content["metadata"]) == [
        "session_id",
        "model",
        "created_at",
        "updated_at",
        "message_count",
        "summary",
        "summary_model",
        "format_version",
        "tool_settings",
        "agent_settings",
        "context_window_config",
    ]
    assert list(content["messages"][0]) == [
        "role",
        "content",
        "source_file",
        "message_id",
        "timestamp",
    ]
    assert content["metadata"]["message_count"] == 4
    lines = text.splitlines()
    assert lines[:3] == ["{", '  "metadata": {', '    "session_id": "a",']
    assert [line[:12] for line in lines[-6:-2]] == ['    {"role":'] * 4
    assert lines[-2:] == ["  ]", "}"]


def test_messages_are_a_sequence_of_their_classes():
    tool = {"role": "tool", "content": "5", "tool_name": "add"}
    messages = session(SYSTEM, FIRST, REPLY, tool, {"role": "narrator"}).messages
    kinds = [SystemMessage, UserMessage, AssistantMessage, ToolMessage, UnknownMessage]
    assert [type(message) for message in messages] == kinds
    assert len(messages) == 5
    assert messages[-4] == messages[1]
    assert [message.content for message in messages[1:3]] == ["Hi", "Hello"]
    with pytest.raises(IndexError):
        _ = messages[5]


def test_what_is_no_message_is_kept_and_shown_as_unknown():
    odd = ["text", 7, None, {"no": "role"}, {"role": "user", "content": ["a", "b"]}, {"role": 3}]
    loaded = session(*odd)
    assert all(isinstance(message, UnknownMessage) for message in loaded.messages)
    loaded.append(UserMessage(content="x"))
    assert session_of(file_of(loaded)).stored_messages()[:-1] == odd
    assert list(loaded.tail())[1:] == odd[::-1]
    assert json.loads(loaded.messages_json())[:-1] == odd
    assert loaded.preview == ""


def test_untouched_messages_are_written_back_byte_for_byte():
    line = b'{"role": "user",  "content": "\\u00fc", "x": 1.50, "big": 1e3}'
    loaded = session(FIRST)
    data = file_of(loaded)
    data = data.replace(b"\n  ]", b",\n    " + line + b"\n  ]")
    again = session_of(data)
    again.append(UserMessage(content="x"))
    assert line in file_of(again)


def test_editing_a_user_message_keeps_its_id_and_drops_what_follows():
    edited = session(SYSTEM, FIRST, REPLY, SECOND)
    edited.edit_user_message(1, "Hallo")
    assert edited.stored(0) == SYSTEM
    message = edited.stored(1)
    assert (message["content"], message["message_id"]) == ("Hallo", "1")
    assert message["timestamp"] != FIRST["timestamp"]
    assert len(edited.messages) == edited.metadata.message_count == 2


def test_attachments_that_other_programs_have_written_are_left_out_of_an_edited_message():
    attachments = [{"attachment_id": ["a"]}, {"attachment_id": "a"}, {"name": "b"}, 7]
    edited = session({**FIRST, "attachments": attachments})
    edited.edit_user_message(0, "Hallo", ["a"])
    message = edited.stored(0)
    assert message["attachments"] == [{"attachment_id": "a"}]
    with pytest.raises(AttachmentNotFound, match="'b'"):
        edited.edit_user_message(0, "Hallo", ["a", "b"])


def test_regenerating_after_a_user_message_changes_nothing():
    ready = session(FIRST)
    assert ready.truncate_after_last_user() == 0
    assert not ready.changed


def test_the_system_prompt_is_always_first_and_there_is_one():
    prompted = session(FIRST)
    prompted.set_system_prompt("A")
    prompted.set_system_prompt("B", "b.md")
    assert [message.role for message in prompted.messages] == ["system", "user"]
    first = prompted.messages[0]
    assert isinstance(first, SystemMessage)
    assert (first.content, first.source_file) == ("B", "b.md")
    assert prompted.remove_system_prompt()
    assert not prompted.remove_system_prompt()
    assert prompted.stored_messages() == [FIRST]


@pytest.mark.parametrize(
    ("content", "preview"),
    [("x" * 100, "x" * 100), ("x" * 101, "x" * 97 + "..."), ("", ""), (None, ""), (7, "")],
)
def test_the_preview_is_the_first_user_message_cut(content, preview):
    first = {"role": "user", "content": content}
    assert session(SYSTEM, first, SECOND).preview == preview


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.500000+00:00"),
        ("2026-03-01T12:00:00+02:00", "2026-03-01T10:00:00+00:00"),
        ("2026-03-01 12:00-0130", "2026-03-01T13:30:00+00:00"),
        ("2026-03-01T12:00:00.1234567z", "2026-03-01T12:00:00.123456+00:00"),
    ],
)
def test_times_with_a_zone_mean_one_instant(text, utc):
    assert instant(text).isoformat() == utc


def test_a_time_without_zone_is_local_time():
    local = datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(0))).replace(tzinfo=None)
    assert instant("2026-03-01T12:00:00.000000") == local.astimezone(timezone.utc)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00", None, 5, "2026-03-01"])
def test_what_is_no_time_is_an_error(text):
    with pytest.raises(ValueError, match=r"time|month"):
        instant(text)


ODD = st.text(
    alphabet=st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from('\x00\x1f\x7f\x85\u2028\u2029\ufeff\ufffe\U0001f44b"\\/\n\r\t'),
    )
)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool", "x"]), ODD, ODD)))
def test_any_text_survives_writing_and_reading(texts):
    stored = [
        {"role": role, "content": text, "more": {other: other}} for role, text, other in texts
    ]
    foreign = session(*stored)
    foreign.append(UserMessage(content="end"))
    data = file_of(foreign)
    ours = session_of(data)
    assert ours.stored_messages()[:-1] == stored
    assert [message.content for message in ours.messages[:-1]] == [text for _, text, _ in texts]
    assert file_of(ours) == data
    assert len(data.decode().split("\n")) == file_of(foreign).count(b"\n") + 1


def test_the_view_of_the_messages_compares_like_a_list():
    messages = session(SYSTEM, FIRST).messages
    assert messages == [messages[0], messages[1]]
    assert messages != [messages[0]]
    assert messages != "text"
    assert messages != 5
    assert repr(messages) == "<Messages: 2>"
    assert repr(session(FIRST)) == "<ChatSession a of 1 messages>"


def test_a_stored_message_without_id_and_time_is_given_none():
    message = session({"role": "user", "content": "Hi"}).messages[0]
    assert isinstance(message, UserMessage)
    assert (message.message_id, message.timestamp) == (None, None)


INFINITE = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("beside", ["plain", "half a pair: \ud800", 2**70])
def test_what_json_cannot_hold_is_replaced(beside):
    decoded = orjson.loads(encode({"numbers": INFINITE, "beside": beside, "pair": "\U0001f600"}))

    assert decoded["numbers"] == [None, None, None]
    assert decoded["pair"] == "\U0001f600"
    if isinstance(beside, str):
        assert decoded["beside"] == beside.replace("\ud800", "\ufffd")
