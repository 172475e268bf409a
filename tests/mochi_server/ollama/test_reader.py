"""Bytes to chunks, without a socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mochi_server.errors import OllamaError
from mochi_server.ollama import reader as module
from mochi_server.ollama.reader import LineSplitter, ReplyReader, as_arguments
from mochi_server.protocol.completions import ContentDelta, Finish, ThinkingDelta
from mochi_server.protocol.messages import ToolCall

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def replies(draw):
    """Chunks, and the bytes of a stream that means them; line ends as Go or a proxy makes them."""
    chunks, lines = [], []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["text", "thought", "call"]))
        text = draw(TEXT.filter(bool))
        message: dict[str, object] = {"role": "assistant", "content": ""}
        if kind == "text":
            message["content"] = text
            chunks.append(ContentDelta(text))
        elif kind == "thought":
            message["thinking"] = text
            chunks.append(ThinkingDelta(text))
        else:
            call = ToolCall(id=f"call_{number}", name="f", arguments={"x": text})
            function = {"index": 0, "name": "f", "arguments": call.arguments}
            message["tool_calls"] = [{"id": call.id, "function": function}]
            chunks.append(call)
        lines.append(json.dumps({"message": message}, ensure_ascii=draw(st.booleans())))
    lines.append('{"message":{"role":"assistant","content":""},"done":true}')
    chunks.append(Finish(reason="stop"))
    ends = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    return chunks, (ends.join(lines) + draw(st.sampled_from(["", ends]))).encode()


def read(pieces):
    reader = ReplyReader("m")
    chunks = []
    for piece in pieces:
        chunks += reader.feed(piece)
    if not reader.finished:
        chunks += reader.close()
    assert reader.error is None
    return chunks


def cut(data, places):
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[at[i] : at[i + 1]] for i in range(len(at) - 1)]


@given(replies(), st.lists(st.integers(0, 10_000), max_size=30))
def test_how_the_bytes_are_cut_does_not_matter(reply, places):
    chunks, data = reply
    assert read(cut(data, places)) == chunks


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=30))
def test_lines_end_at_line_feeds_only(data, places):
    splitter = LineSplitter()
    lines = [line for piece in cut(data, places) for line in splitter.feed(piece)]
    assert [*lines, splitter.rest()] == data.split(b"\n")
    assert splitter.pending == len(splitter.rest())


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_make_it_raise(pieces):
    reader = ReplyReader("m")
    for piece in pieces:
        reader.feed(piece)
        if reader.finished or reader.error:
            return
    reader.close()
    assert reader.finished or isinstance(reader.error, OllamaError)


LEAVES = st.none() | st.booleans() | st.integers() | TEXT
FIELDS = st.sampled_from(
    ["message", "error", "done", "content", "thinking", "tool_calls", "function", "name", "id"]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner), max_leaves=8
)


@given(JSON)
@settings(max_examples=60)
def test_no_json_makes_it_raise(value):
    reader = ReplyReader("m")
    chunks = reader.feed(json.dumps(value).encode() + b"\n")
    assert reader.error or all(
        isinstance(chunk, (ContentDelta, ThinkingDelta, ToolCall, Finish)) for chunk in chunks
    )


def test_a_line_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 1000)
    reader = ReplyReader("m")
    for _ in range(11):
        reader.feed(b"x" * 100)
    assert "more than 1000 bytes" in str(reader.error)


@pytest.mark.parametrize(
    ("given_", "read_as"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ("not json", {"input": "not json"}),
        ("[1]", {"input": [1]}),
        ([1], {"input": [1]}),
    ],
)
def test_arguments_are_always_an_object(given_, read_as):
    assert as_arguments(given_) == read_as


@pytest.mark.parametrize("levels", [101, 260, 900])
def test_arguments_nested_without_end_are_replaced(levels):
    """They could be neither stored nor sent; the call is still answered."""
    deep = "[" * levels + "]" * levels
    call = f'{{"function":{{"name":"f","arguments":{{"x":{deep}}}}}}}'
    chunks = read([f'{{"message":{{"tool_calls":[{call}]}},"done":true}}\n'.encode()])
    assert chunks[0].arguments == {"input": "(nested more than 100 levels deep)"}


@pytest.mark.parametrize("as_text", [False, True])
def test_arguments_of_too_many_values_are_replaced(as_text):
    """To read, compare and store them would keep all others waiting."""
    arguments = {"x": [{}] * 10_001}
    told = json.dumps(arguments) if as_text else arguments
    line = json.dumps({"message": {"tool_calls": [{"function": {"name": "f", "arguments": told}}]}})
    call = read([line.encode(), b'\n{"message":{},"done":true}\n'])[0]
    assert call.arguments == {"input": "(more than 10,000 values)"}


def test_a_line_of_too_many_values_is_not_parsed():
    """The interpreter would do nothing else meanwhile."""
    reader = ReplyReader("m")
    line = b'{"message":{"content":"a"},"x":[' + b"{}," * 300_000 + b"1]}"
    assert reader.feed(line + b"\n") == []
    assert "more than 200000 values" in reader.error.message
