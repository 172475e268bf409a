"""What a line of a journal says is what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.chat.journal.records import (
    RUN_STRIDE,
    EventLine,
    Note,
    RunHead,
    decode,
    encode_events,
    encode_head,
    encode_note,
)
from mochi_server.protocol import events as protocol
from mochi_server.protocol.events import ContentDelta, ToolCallStarted
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import JsonObjectFormat
from mochi_server.protocol.turn_request import TurnRequest
from tests.support.runs import EVENTS, events_of, head


@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.integers(1, RUN_STRIDE * 1000))
def test_events_are_read_from_any_number_on(events, first):
    line = decode(encode_events(first, events))

    numbered = list(enumerate(events, first))
    for since in range(first - 1, first + len(events) + 2):
        assert events_of([line], since) == [pair for pair in numbered if pair[0] >= since]


def test_the_sample_has_every_event():
    classes = {getattr(protocol, name) for name in protocol.__all__} - {
        protocol.AgentDelta,
        protocol.Event,
    }
    assert {type(event) for event in EVENTS} == classes


def test_deltas_in_a_row_are_one_entry():
    line = decode(encode_events(1, [ContentDelta(text) for text in "abc"]))

    assert isinstance(line, EventLine)
    assert line.entries == [["a", "b", "c"]]


def test_a_line_is_one_line():
    assert b"\n" not in encode_events(1, EVENTS)
    assert b"\n" not in encode_note(Note("end", {"code": "a\nb"}))


def test_what_only_a_newer_version_knows_is_passed_over():
    newer = encode_head(head("r")).replace(b'{"run":{', b'{"run":{"mood":"good",')
    assert decode(newer) == head("r")

    line = decode(
        b'[5,["a"],{"event":"mood_change","data":{"mood":"good"}},'
        b'{"event":"done","data":{"session_id":"s","mood":"good"}},{"mood":["good"]},["b"]]'
    )
    assert events_of([line]) == [
        (5, ContentDelta("a")),
        (7, protocol.Done(session_id="s")),
        (9, ContentDelta("b")),
    ]


def test_heads_and_notes_are_read_back():
    full = RunHead(
        run_id="r",
        session_id="s",
        number=3,
        model="m",
        started_at="now",
        request=TurnRequest(
            model="preset/m",
            think="high",
            wait=False,
            selected=["a"],
            client_tools=({"type": "function", "function": {"name": "f"}},),
            options=ModelOptions(seed=7),
            response_format=JsonObjectFormat(type="json_object"),
            continues=True,
        ),
    )
    for each in (head(), full):
        assert decode(encode_head(each)) == each
    assert full.first_event == 2 * RUN_STRIDE + 1
    note = Note("storing", {"messages": ["a"], "until": 3})
    assert decode(encode_note(note)) == note


def test_what_json_cannot_hold_exactly_moves_no_number():
    arguments = {"half": "\ud800", "big": 2**70, "number": float("nan")}
    call = ToolCallStarted(tool_name="t", arguments=arguments, call_index=0, tool_call_id="c")

    halves = [ContentDelta("a\ud83d"), ContentDelta("\ude00b")]
    events = events_of([decode(encode_events(5, [call, *halves]))])

    assert [number for number, _ in events] == [5, 6, 7]
    assert events[0][1].arguments == {"half": "\ufffd", "big": 2.0**70, "number": None}
    assert [event for _, event in events[1:]] == [ContentDelta("a\ufffd"), ContentDelta("\ufffdb")]


def test_arguments_may_be_as_deep_as_a_session_allows():
    value: object = None
    for _ in range(200):
        value = [value]
    call = ToolCallStarted(
        tool_name="t", arguments={"a": value}, call_index=0, tool_call_id="\ud800"
    )
    ((_, event),) = events_of([decode(encode_events(1, [call]))])
    assert event.arguments == {"a": value}


@pytest.mark.parametrize(
    "line", [b"", b"[", b"[]", b"{}", b"3", b'"run"', b'{"run":{}}', b'{"run":3}', b"\xff", b"null"]
)
def test_what_is_no_line_is_none(line):
    assert decode(line) is None


def test_whole_numbers_stay_exact():
    arguments = {"long": 10**20, "text": "1" * 30}
    event = ToolCallStarted(tool_name="t", arguments=arguments, call_index=0, tool_call_id="c")
    line = decode(encode_events(1, [event]))
    assert isinstance(line, EventLine)
    [(_, read)] = line.events()
    assert isinstance(read, ToolCallStarted)
    assert read.arguments == arguments
    assert isinstance(read.arguments["long"], int)
