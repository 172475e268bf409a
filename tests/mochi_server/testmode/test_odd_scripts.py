"""Blocks that nobody would write on purpose."""

from __future__ import annotations

import json

import pytest

from mochi_server.testmode.script import END, START, instructions
from mochi_server.testmode.script import text as words
from tests.support.scripted import answer, chunks, deltas, text


def block(body: str) -> str:
    return f"{START}{body}{END}"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_what_only_python_calls_json_is_no_block(number):
    said = block(f'{{"messages": [{{"tool_call": [{{"name": "a", "args": {{"x": {number}}}}}]}}]}}')
    assert text(await chunks(said)).endswith(f"\n\n{said}")


async def test_null_is_no_script():
    status, content = await answer(block("null"))
    assert (status, b"no script: the block" in content) == (400, True)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("[1]", "the block"),
        ('{"messages": [1]}', "messages.0"),
        ('{"messages": [{"text_message": 5}]}', "messages.0.text_message"),
        ('{"messages": [{"tool_call": [{"name": "a", "args": "{}"}]}]}', "tool_call.0.args"),
    ],
)
async def test_what_should_be_an_object_is_told_in_words_of_json(body, place):
    status, content = await answer(block(body))
    message = json.loads(content)["error"]["message"]
    assert status == 400
    assert message.endswith(f"{place}: Input should be an object")


async def test_the_helper_writes_steps_alone_where_no_items_are_given():
    said = instructions(then=[[words(exactly="One.")], [words(exactly="Two.")]], lasting=True)
    assert text(await chunks(said)) == "One."
    assert text(await chunks(instructions())) == ""


@pytest.mark.parametrize(
    "items",
    [
        f'{{"text_message": {{"length": {"9" * 5000}}}}}',
        f'{{"text_message": {{"length": {"9" * 400}}}}}',
        '{"tool_call": [{"name": "a", "args": {"x": 1e400}}]}',
        f'{{"stall": {{"seconds": {"9" * 400}}}}}',
        '{"usage": {"prompt_tokens": 123456789012345678901234567890}}',
        '{"usage": {"completion_tokens": 9007199254740993000}}',
        f'{{"error": {{"status": 429, "retry_after": {"9" * 100}}}}}',
    ],
)
async def test_a_number_beyond_all_measure_is_an_error_of_the_script(items):
    status, content = await answer(block(f'{{"messages": [{items}]}}'))
    assert status == 400
    assert json.loads(content)["error"]["message"].startswith("The instruction block is no script")


async def test_a_number_beyond_all_measure_fails_its_own_message_only():
    before = {"role": "user", "content": block(f'{{"messages": [{"9" * 5000}]}}')}
    assert text(await chunks([before, {"role": "user", "content": "Hello"}])).endswith("\n\nHello")


async def test_a_large_whole_number_in_an_argument_is_sent_as_it_is():
    said = block(
        '{"messages": [{"tool_call": [{"name": "a", "args": {"x": 12345678901234567890123}}]}]}'
    )
    pieces = [piece for many in deltas(await chunks(said), "tool_calls") for piece in many]
    sent = "".join(piece["function"]["arguments"] for piece in pieces)
    assert sent == '{"x": 12345678901234567890123}'


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (r'{"text_message": {"text": "half \ud83d of"}}', "half \ufffd of"),
        (r'{"text_message": {"text": "half \uDE00\ud83d of"}}', "half \ufffd\ufffd of"),
        (r'{"text_message": {"text": "whole \ud83d\ude00, \\ud83d"}}', "whole 😀, \\ud83d"),
    ],
)
async def test_half_a_character_is_a_sign_of_replacement(items, said):
    assert text(await chunks(block(f'{{"messages": [{items}]}}'))) == said


@pytest.mark.parametrize(
    "items",
    [
        r'{"tool_call": [{"name": "\ud83d", "id": "\ud83d", "args": {"\ud83d": "\ud83d"}}]}',
        r'{"malformed_tool_call": {"name": "a", "arguments": "\ud83d"}}',
        r'{"finish_reason": "\ud83d"}',
    ],
)
async def test_half_a_character_breaks_no_stream(items):
    status, content = await answer(block(f'{{"messages": [{items}]}}'))
    assert (status, content[-14:]) == (200, b"data: [DONE]\n\n")


async def test_half_a_character_in_a_failure_keeps_its_status():
    said = r'{"messages": [{"error": {"status": 418, "message": "\ud83d", "code": "\ud83d"}}]}'
    status, content = await answer(block(said))
    assert status == 418
    assert json.loads(content)["error"]["message"] == "\ufffd"


async def test_of_several_blocks_the_first_one_counts():
    one, two = (block(f'{{"messages": [{{"text_message": {{"text": "{n}"}}}}]}}') for n in "12")
    assert text(await chunks(f"{one} {two}")) == "1"


async def test_a_model_without_thinking_does_not_think():
    found = await chunks("Why?\nReason: so", model="lorem-plain")
    assert deltas(found, "reasoning") == []
    assert text(found).endswith("Why?\nReason: so")


@pytest.mark.parametrize("reasoning", [{}, {"length": None}, None])
async def test_reasoning_without_a_length_is_none(reasoning):
    script = {"reasoning": reasoning, "messages": [{"text_message": {"length": 3}}]}
    found = await chunks(block(json.dumps(script)))
    assert deltas(found, "reasoning") == []
    assert len(text(found).split()) == 3
