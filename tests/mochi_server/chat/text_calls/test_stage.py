"""Calls that arrive as text, by the table in ``tests/data/text_calls``: a reply in each file."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mochi_server.chat.text_calls import TextCalls
from mochi_server.chat.text_calls.marks import MARKS
from mochi_server.chat.text_calls.stage import MOST_HELD
from mochi_server.protocol.completions import Chunk, ContentDelta, Finish
from mochi_server.protocol.messages import ToolCall
from tests.support.text_calls import SHAPES, TOOLS, shape


def replied(pieces: Iterable[str], reason: str = "stop") -> tuple[str, list[tuple[str, Any]]]:
    """What a reply in these pieces becomes: the text that is shown, and the calls."""
    stage = TextCalls(TOOLS)
    chunks: list[Chunk] = []
    for piece in pieces:
        chunks += stage.add([ContentDelta(piece)])
    chunks += stage.add([Finish(reason=reason)])
    assert isinstance(chunks[-1], Finish)
    text = "".join(chunk.content for chunk in chunks if isinstance(chunk, ContentDelta))
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    assert all(call.recovered for call in calls)
    return text, [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_reply_is_its_calls_or_exactly_its_text(name: str, size: int) -> None:
    text, shown, calls = shape(name)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert replied(pieces) == (shown if calls else text, calls)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("reason", ["length", "content_filter", "safety"])
def test_a_reply_that_was_cut_off_is_not_completed(name: str, reason: str) -> None:
    text, _, calls = shape(name)
    for end in range(1, len(text)):
        shown, made = replied([text[:end]], reason)
        assert shown == text[:end] or made
        assert not calls or made == calls[: len(made)]


WORDS = [*MARKS, "<function=", "</function>", "<parameter=a>", "```", "```json\n", "```py\n", "`"]
WORDS += ["{", "}", "[", "]", '"name"', '"arguments"', ": ", '"x"', ", ", "\n", " ", "é", "x", "("]
WORDS += ['{"name": "other", "arguments": {}}', "{'name':", "> ", "\n{", "example"]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=40), st.randoms())
def test_text_without_the_name_of_a_tool_is_shown_as_it_came(
    pieces: list[str], random: Random
) -> None:
    text = "".join(pieces)
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(10)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert replied(parts) == (text, [])


BEGINS = ["<tool_call>", "```json\n", '{"name": "', "[convert_units(", "\n{"]
RESTS = ["x", "{", '{"name": "convert_units", ', "\n", " ", "<", "[\n", "{\n", "```\n"]


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("rest", RESTS)
def test_no_more_is_held_back_than_a_call_may_have(begin: str, rest: str) -> None:
    stage = TextCalls(TOOLS)
    sent = shown = 0
    for piece in [begin, *[rest * 100] * 200]:
        sent += len(piece)
        chunks = stage.add([ContentDelta(piece)])
        shown += sum(len(each.content) for each in chunks if isinstance(each, ContentDelta))
        assert sent - shown <= MOST_HELD


OSLO = '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
NOTES = '{"name": "list_notes", "arguments": {}}\n'


@pytest.mark.parametrize(
    ("repeated", "names"),
    [
        (OSLO, ["get_weather"]),
        (OSLO + NOTES, ["get_weather", "list_notes"]),
        (NOTES + OSLO + NOTES, ["list_notes", "get_weather"]),
        (OSLO + '{"result": "rain"}\n', ["get_weather"]),
    ],
)
def test_a_model_that_repeats_calls_is_stopped_and_makes_each_once(
    repeated: str, names: list[str]
) -> None:
    stage = TextCalls(TOOLS)
    chunks: list[Chunk] = []
    for piece in repeated * 50:
        chunks += stage.add([ContentDelta(piece)])
        if stage.is_over:
            break
    *calls, finish = chunks
    assert [each.name for each in calls if isinstance(each, ToolCall)] == names
    assert len(calls) == len(names)
    assert isinstance(finish, Finish)


CALLS = [OSLO.strip(), NOTES.strip(), "{'name': 'notes', 'args': {}}", "[list_notes()]"]
CALLS += ["<function=list_notes></function>", "list_notes()", OSLO[:-3], '{"result": "rain"}']


@given(st.lists(st.sampled_from(CALLS) | st.sampled_from(WORDS), max_size=12), st.randoms())
@example([NOTES, NOTES, NOTES, "There you are."], Random(1))
@example(["[list_notes()]\n", "[list_notes()]\n", "list_notes()", "m"], Random(1))
@example(["I see.</think>\n", '{"function": {"name": "list_notes", "arguments": "{}"}'], Random(1))
@example([NOTES * 3, "\n</think>\n", OSLO], Random(1))
def test_what_a_reply_becomes_does_not_depend_on_where_it_is_cut(
    pieces: list[str], random: Random
) -> None:
    text = "".join(pieces)
    size = random.randrange(1, 40)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert replied([text]) == replied(text) == replied(parts)


@pytest.mark.parametrize("text", ["x{", "`", "<", "[", '{"a":1},', "\n{"])
def test_a_long_line_that_comes_at_once_is_read_once(text: str) -> None:
    long = text * (1_000_000 // len(text))
    assert replied([long]) == (long, [])


def test_a_parameter_of_xml_that_is_nested_too_deep_is_a_text() -> None:
    deep = "[" * 1900
    text = f"<function=get_weather><parameter=city>x</parameter><parameter=days>{deep}"
    assert replied([text]) == ("", [("get_weather", {"city": "x", "days": deep})])
