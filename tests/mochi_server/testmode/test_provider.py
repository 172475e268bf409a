"""The reply to a message without instructions: lorem ipsum, reasoning, echo, termination."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from mochi_server.providers.base import ModelRequest
from mochi_server.testmode.provider import ScriptedProvider
from mochi_server.testmode.samples import (
    NoExample,
    example_of,
    length_of,
    lorem,
    pieces,
    stable_hash,
    words_of,
)
from tests.support.clocks import run_skipping
from tests.support.scripted import answer, chunks, client, deltas, finishes, text
from tests.support.server import ROOT

ASKED = "What is a lorem?\nReason: because  two spaces matter"


async def test_chunks_are_chat_completion_chunks_with_text_and_reasoning_in_their_deltas():
    found = await chunks(ASKED)
    assert {chunk["object"] for chunk in found} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in found} == {"any"}
    assert len({chunk["id"] for chunk in found}) == 1
    assert deltas(found, "content")
    assert deltas(found, "reasoning")


async def test_a_finish_chunk_comes_before_a_final_line_with_done():
    _, content = await answer(ASKED)
    *_, finish, done, rest = content.decode().split("\n\n")
    assert '"finish_reason":"stop"' in finish
    assert (done, rest) == ("data: [DONE]", "")
    assert finishes(await chunks(ASKED)) == [(0, "stop")]


@pytest.mark.parametrize("fields", [{"stream": False}, {"stream": None}])
async def test_there_is_no_answer_without_a_stream(fields):
    status, content = await answer("Hello", **fields)
    assert status == 400
    assert b"streams of chat completions only" in content


async def test_other_paths_are_refused():
    async with client() as http:
        assert (await http.get("http://test.invalid/v1/models")).status_code == 400


async def test_reasoning_comes_before_any_text_when_the_message_says_reason():
    found = await chunks(ASKED)
    kinds = [
        next(iter({"content", "reasoning"} & set(c["choices"][0]["delta"])), "") for c in found
    ]
    spoken = [kind for kind in kinds if kind]
    assert spoken == sorted(spoken, reverse=True)
    assert set(spoken) == {"reasoning", "content"}


@pytest.mark.parametrize("message", ["Hello", "Reason: at the start of a message", "\nreason: no"])
async def test_without_the_trigger_on_its_own_line_there_is_no_reasoning(message):
    assert deltas(await chunks(message), "reasoning") == []


async def test_only_the_latest_user_message_triggers():
    said = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": "Well"},
        {"role": "user", "content": "Now plain"},
    ]
    found = await chunks(said)
    assert deltas(found, "reasoning") == []
    assert text(found).endswith("Now plain")


async def test_the_reasoning_reflects_what_follows_reason_and_echoes_the_message():
    thought = text(await chunks(ASKED), "reasoning")
    assert thought == f"because  two spaces matter\n\n{ASKED}"


@pytest.mark.parametrize("number", range(40))
def test_the_length_is_from_5_to_500_words_by_a_stable_hash(number):
    message = f"Message {number}"
    digest = hashlib.sha256(message.encode()).digest()
    expected = 5 + int.from_bytes(digest[:8], "big") % 496
    assert length_of(message) == expected
    assert len(lorem(expected, message).split()) == expected
    assert 5 <= expected <= 500


async def test_the_echo_is_verbatim_at_the_end_and_does_not_count():
    message = "  Keep\tevery \n\n space, and ünïcode 😀  "
    said = text(await chunks(message))
    assert said.endswith(f"\n\n{message}")
    assert len(said.removesuffix(message).split()) == length_of(message)


def test_the_hash_is_the_same_in_every_process():
    code = "from mochi_server.testmode.samples import *; print(stable_hash('é'), lorem(30, 'x'))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{stable_hash('é')} {lorem(30, 'x')}\n"}


@pytest.mark.parametrize("message", ["a", "one two three", " x ", "ab " * 1000, "\n\n", "a  b\n"])
def test_chunks_have_3_to_10_words_and_lose_nothing(message):
    found = list(pieces(message, "seed"))
    assert "".join(piece for piece, _ in found) == message
    assert all(3 <= words <= 10 for _, words in found[:-1])
    assert all(words <= 10 for _, words in found)


def test_chunk_sizes_vary():
    assert {words for _, words in pieces("word " * 1000, "seed")} >= set(range(3, 11))


def test_a_long_run_of_spaces_is_one_word():
    assert words_of(" " * 1_000_000) == [" " * 1_000_000]


async def test_two_requests_give_the_same_bytes():
    assert await answer(ASKED) == await answer(ASKED)
    assert await answer(ASKED) != await answer(f"{ASKED}!")


async def test_counts_come_where_they_are_asked_for():
    *_, usage = await chunks("Hello", stream_options={"include_usage": True})
    assert usage["choices"] == []
    counts = usage["usage"]
    assert counts["completion_tokens"] > 0
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]
    assert all("usage" not in chunk for chunk in await chunks("Hello"))


async def test_content_in_parts_is_read_as_text():
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}]
    assert text(await chunks([{"role": "user", "content": parts}])).endswith("\n\nHello there")


@pytest.mark.parametrize("pace", [50, 2000])
def test_the_pace_can_be_set_in_words_per_second(pace):
    found, seconds = run_skipping(chunks("Hello", pace=pace))
    assert seconds == pytest.approx(len(text(found).split()) / pace)


# Replies that fit a schema


class Colour(Enum):
    RED = "red"


class Leaf(BaseModel):
    size: float = Field(gt=2)
    word: str = Field(min_length=20, max_length=30)


class Tree(BaseModel):
    """Something of everything."""

    name: str = Field(max_length=5)
    age: int = Field(ge=3)
    colour: Colour
    kind: Literal["oak", "elm"]
    leaves: list[Leaf] = Field(min_length=2)
    owner: str | None
    dead: bool
    tags: dict[str, str]
    parent: Tree | None = None


async def test_a_structured_reply_validates():
    provider = ScriptedProvider("test", words_per_second=0)
    asked = ModelRequest(model="any", messages=[{"role": "user", "content": "Describe a tree."}])
    tree = await provider.structured(asked, Tree)
    assert tree.age == 3
    assert len(tree.leaves) == 2
    assert tree.colour is Colour.RED
    await provider.aclose()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, None),
        ({"type": ["string", "null"]}, "Lorem ipsum"),
        ({"const": 4}, 4),
        ({"oneOf": [{"type": "boolean"}]}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": "#"}, None),
        ({"properties": {"a": {"examples": [1, 2]}}}, {"a": 1}),
    ],
)
def test_each_word_of_a_schema_is_obeyed(schema, expected):
    assert example_of(schema) == expected


def test_a_schema_that_branches_into_itself_has_a_small_example():
    either = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    node = {"type": "object", "properties": dict.fromkeys("abcd", either)}
    found = example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    assert len(str(found)) < 10_000
    assert set(found["a"]) == set("abcd")


def test_what_need_not_be_there_ends_where_a_schema_goes_on_for_ever():
    """As of a type whose fields may be missing, and are of that same type."""
    node = {"type": "object", "properties": {name: {"$ref": "#/$defs/node"} for name in "abcd"}}
    found = example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    assert len(str(found)) < 200_000
    assert set(found["a"]) == set("abcd")


def test_a_schema_that_asks_for_too_much_has_no_example():
    node = {
        "type": "object",
        "properties": {name: {"$ref": "#/$defs/node"} for name in "abcd"},
        "required": list("abcd"),
    }
    with pytest.raises(NoExample):
        example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    lists = {"type": "integer"}
    for _ in range(9):
        lists = {"type": "array", "minItems": 10, "items": lists}
    with pytest.raises(NoExample):
        example_of(lists)
