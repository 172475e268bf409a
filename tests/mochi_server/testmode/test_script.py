"""The instruction block: what a message can order."""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import nullcontext
from typing import Any

import httpx2
import pytest

from mochi_server.testing import (
    call,
    calls,
    cut,
    error,
    finish_reason,
    instructions,
    malformed_call,
    stall,
    usage,
)
from mochi_server.testing import text as words
from mochi_server.testmode.provider import BASE_URL
from mochi_server.testmode.samples import length_of
from mochi_server.testmode.script import END, START
from tests.support.scripted import (
    answer,
    body_of,
    chunks,
    client,
    deltas,
    finishes,
    parsed,
    text,
)


def block(script: Any) -> str:
    """A block as a person would write it, with text around it."""
    body = script if isinstance(script, str) else json.dumps(script)
    return f"Ignore this.\n<|instruction_start|>\n{body}\n<|instruction_end|> And this."


def bare(body: str) -> str:
    """A block with nothing around it."""
    return f"{START}{body}{END}"


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(call_id: str = "c1") -> list[dict[str, Any]]:
    """A round of tools in the history."""
    function = {"name": "add", "arguments": "{}"}
    entry = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [entry]},
        {"role": "tool", "tool_call_id": call_id, "content": "the result is 5"},
    ]


async def test_only_the_block_counts_for_the_reply():
    found = await chunks(block({"messages": [{"text_message": {"length": 12}}]}))
    assert len(text(found).split()) == 12
    assert "Ignore" not in text(found)


async def test_the_id_stands_at_the_start_and_end_of_reasoning_and_text_and_does_not_count():
    script = {
        "id_message": "ID-7",
        "reasoning": {"length": 6},
        "messages": [{"text_message": {"length": 9}}, {"text_message": {"length": 2}}],
    }
    found = await chunks(block(script))
    for choice, length in ((0, 9), (1, 2)):
        said, thought = text(found, choice=choice), text(found, "reasoning", choice)
        for whole, count in ((said, length), (thought, 6)):
            assert whole.startswith("ID-7 ")
            assert whole.endswith(" ID-7")
            assert len(whole.split()) == count + 2


async def test_reasoning_is_streamed_first_where_its_length_is_given():
    found = await chunks(
        block({"reasoning": {"length": 30}, "messages": [{"text_message": {"length": 30}}]})
    )
    spoken = [
        key for c in found for key in c["choices"][0]["delta"] if key in ("content", "reasoning")
    ]
    assert spoken == sorted(spoken, reverse=True)
    assert len(text(found, "reasoning").split()) == 30


async def test_without_a_length_of_reasoning_there_is_none():
    assert deltas(await chunks(instructions(words(5))), "reasoning") == []


async def test_each_message_is_a_stream_of_its_own_with_its_index():
    found = await chunks(instructions(words(4), call("add", a=1), words(8)))
    indexes = [chunk["choices"][0]["index"] for chunk in found]
    assert all(len(chunk["choices"]) == 1 for chunk in found)
    assert set(indexes) == {0, 1, 2}
    assert len(text(found, choice=0).split()) == 4
    assert len(text(found, choice=2).split()) == 8
    assert finishes(found) == [(0, "stop"), (1, "tool_calls"), (2, "stop")]


async def test_tool_calls_come_progressively_with_their_indexes():
    arguments = {"text": "a long argument that takes several pieces", "n": [1, 2, {"x": None}]}
    found = await chunks(instructions(calls(("first", arguments), ("second", {}))))
    pieces = [piece for many in deltas(found, "tool_calls") for piece in many]
    for index, name in ((0, "first"), (1, "second")):
        own = [piece for piece in pieces if piece["index"] == index]
        assert own[0]["type"] == "function"
        assert own[0]["id"].startswith("call_")
        assert own[0]["function"] == {"name": name, "arguments": ""}
        assert all("name" not in piece["function"] and "id" not in piece for piece in own[1:])
    first = [piece["function"]["arguments"] for piece in pieces if piece["index"] == 0]
    assert len(first) > 3
    assert json.loads("".join(first)) == arguments


async def test_long_arguments_come_in_a_thousand_pieces_or_so():
    found = await chunks(instructions(call("write", content="x" * 500_000)))
    pieces = deltas(found, "tool_calls")
    assert 900 < len(pieces) < 1100
    whole = "".join(piece["function"]["arguments"] for (piece,) in pieces)
    assert json.loads(whole) == {"content": "x" * 500_000}


async def test_ids_of_calls_are_those_of_the_script_or_follow_from_it():
    given = block({"messages": [{"tool_call": [{"name": "a", "args": {}, "id": "mine"}]}]})
    assert deltas(await chunks(given), "tool_calls")[0][0]["id"] == "mine"
    ids = [deltas(await chunks(instructions(call("a"))), "tool_calls")[0][0]["id"] for _ in "12"]
    assert ids[0] == ids[1]


async def test_the_same_block_later_in_a_conversation_calls_with_another_id():
    message = user(instructions(call("a")))
    (first,) = {deltas(await chunks([message]), "tool_calls")[0][0]["id"]}
    later = await chunks([message, *called(), {"role": "assistant", "content": "x"}, message])
    assert deltas(later, "tool_calls")[0][0]["id"] != first


@pytest.mark.parametrize(
    "message",
    [
        block("{not json"),
        "<|instruction_start|>{}",
        "<|instruction_end|>{}<|instruction_start|>",
        block("[" * 100_000),
        block(""),
    ],
)
async def test_without_a_block_of_valid_json_the_reply_is_lorem_and_echo(message):
    said = text(await chunks(message))
    assert said.endswith(message)
    assert len(said.removesuffix(message).split()) == length_of(message)


async def test_a_block_without_valid_json_can_still_reason():
    found = await chunks(f"{block('{')}\nReason: still")
    assert text(found, "reasoning").startswith("still")


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ([], "the block: Input should be an object"),
        (None, "no script: the block"),
        ({}, "needs messages or steps"),
        ({"messages": [1]}, "messages.0: Input should be an object"),
        ({"messages": [{"text_message": 5}]}, "messages.0.text_message: Input should be an object"),
        (
            {"messages": [{"tool_call": [{"name": "a", "args": "{}"}]}]},
            "tool_call.0.args: Input should be an object",
        ),
        ({"messages": [{}]}, "messages.0: needs exactly one of"),
        ({"messages": [{"text_message": {}}]}, "messages.0.text_message: needs either"),
        ({"messages": [{"text_message": {"length": -1}}]}, "messages.0.text_message.length"),
        (
            {
                "reasoning": {"length": 1, "text": "a"},
                "messages": [{"text_message": {"length": 1}}],
            },
            "reasoning: needs either length or text",
        ),
        ({"messages": [{"text_massage": {"length": 1}}]}, "messages.0.text_massage"),
        ({"messages": [{"error": {"status": 200}}]}, "messages.0.error.status"),
        (
            {"messages": [{"text_message": {"length": 15_000}}] * 2},
            "the block: a reply has at most 20000 words",
        ),
        (
            {
                "reasoning": {"length": 15_000},
                "steps": [[{"text_message": {"length": 6_000}}]],
            },
            "at most 20000 words",
        ),
        ({"messages": [{"stall": {"seconds": 1e9}}]}, "messages.0.stall.seconds"),
    ],
)
async def test_json_that_is_no_script_is_an_error_that_names_the_place(script, place):
    status, content = await answer(block(script))
    assert status == 400
    assert place in json.loads(content)["error"]["message"]


async def test_a_given_text_is_sent_as_it_is():
    exactly = "# Title\n\n- one\n- two  \n\n```py\nx = 1\n```\n"
    assert text(await chunks(instructions(words(exactly=exactly)))) == exactly


async def test_a_text_can_have_reasoning_of_its_own():
    found = await chunks(instructions(words(3), words(3, reasoning=7)))
    assert text(found, "reasoning", 0) == ""
    assert len(text(found, "reasoning", 1).split()) == 7


@pytest.mark.parametrize("exactly", ["Hm.  Well,\r\n\n\t🙂 …", ""])
async def test_what_is_thought_can_be_given_verbatim(exactly):
    own = await chunks(instructions(words(exactly="Yes."), words(3, reasoning=exactly)))
    assert [text(own, "reasoning", choice) for choice in (0, 1)] == ["", exactly]
    each = await chunks(instructions(words(1), words(1, reasoning="No."), reasoning=exactly))
    assert [text(each, "reasoning", choice) for choice in (0, 1)] == [exactly, "No."]


async def test_the_steps_follow_each_other_after_the_results_of_tools():
    message = user(instructions(call("add"), then=[[call("sub")], [words(exactly="Done.")]]))
    first = await chunks([message])
    second = await chunks([message, *called()])
    third = await chunks([message, *called(), *called("c2")])
    names = [deltas(found, "tool_calls")[0][0]["function"]["name"] for found in (first, second)]
    assert names == ["add", "sub"]
    assert text(third) == "Done."


async def test_steps_alone_are_a_script():
    message = block({"steps": [[{"text_message": {"length": 2}}]]})
    assert len(text(await chunks(message)).split()) == 2


async def test_after_the_last_step_the_reply_is_the_results_of_the_tools():
    message = user(instructions(call("add"), id_message="M"))
    found = await chunks([message, *called()])
    assert text(found) == "M the result is 5 M"
    assert finishes(found) == [(0, "stop")]


async def test_a_script_holds_for_its_own_message_only():
    history = [user(instructions(words(3))), {"role": "assistant", "content": "x"}, user("Plain")]
    assert text(await chunks(history)).endswith("\n\nPlain")


async def test_a_lasting_script_goes_on_over_later_messages_until_its_end():
    script = instructions(words(exactly="one"), then=[[words(exactly="two")]], lasting=True)
    history = [user(script), {"role": "assistant", "content": "one"}, user("And?")]
    assert text(await chunks(history)) == "two"
    history += [{"role": "assistant", "content": "two"}, user("More?")]
    assert text(await chunks(history)).endswith("\n\nMore?")


@pytest.mark.parametrize("item", ['{"text_message": {"length": -1}}', "9" * 5000])
async def test_a_block_that_is_no_script_fails_its_own_message_only(item):
    history = [user(block(f'{{"messages": [{item}]}}')), user("Plain")]
    assert text(await chunks(history)).endswith("\n\nPlain")


async def test_a_block_may_stand_in_an_argument_of_a_call():
    inner = instructions(words(3))
    found = await chunks(instructions(call("agent", instruction=inner)))
    arguments = "".join(
        piece["function"]["arguments"] for many in deltas(found, "tool_calls") for piece in many
    )
    assert json.loads(arguments) == {"instruction": inner}


async def test_an_error_that_comes_first_is_a_status():
    status, content = await answer(
        instructions(error(429, message="Slow down", code="too_fast", retry_after=7))
    )
    assert status == 429
    assert json.loads(content) == {
        "error": {"message": "Slow down", "type": "rate_limit_error", "code": "too_fast"}
    }


async def test_an_error_after_words_is_an_event_of_the_stream_and_its_last():
    status, content = await answer(instructions(words(20), error(500, after_words=6)))
    found = parsed(content)
    assert status == 200
    assert b"[DONE]" not in content
    assert len(text(found).split()) == 6
    assert found[-1]["error"]["message"] == "The test asked for this error."


async def test_an_error_stands_at_its_place_among_the_messages():
    _, content = await answer(instructions(words(4), error(500), words(9)))
    found = parsed(content)
    assert len(text(found).split()) == 4
    assert text(found, choice=2) == ""
    assert "error" in found[-1]


FAILS: list[tuple[list[Any], type[Exception] | None]] = [
    ([error(503)], None),
    ([cut("disconnect")], httpx2.RemoteProtocolError),
    ([words(20), cut("disconnect", after_words=3)], httpx2.RemoteProtocolError),
    ([words(20)], None),
]


@pytest.mark.parametrize(("script", "fault"), FAILS)
async def test_whatever_becomes_of_a_reply_nothing_of_it_is_left_behind(script, fault):
    """Also where nobody reads it: what is left to the garbage collector ends at any time."""
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=lambda one: left.append(one.__qualname__))
    try:
        url, body = f"{BASE_URL}/chat/completions", body_of(instructions(*script))
        with pytest.raises(fault) if fault else nullcontext():
            async with client() as http, http.stream("POST", url, json=body) as response:
                if fault:
                    await response.aread()
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []


async def test_a_disconnect_breaks_the_connection_before_or_within_the_reply():
    with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
        await answer(instructions(cut("disconnect")))
    with pytest.raises(httpx2.RemoteProtocolError, match="peer closed connection"):
        await answer(instructions(words(20), cut("disconnect", after_words=3)))


@pytest.mark.parametrize("after", [0, 1, 7, 19, 20, 500])
async def test_a_cancel_ends_the_stream_at_its_word_without_a_finish(after):
    status, content = await answer(instructions(words(20), cut("cancel", after_words=after)))
    found = parsed(content)
    assert status == 200
    assert len(text(found).split()) == min(after, 20)
    assert finishes(found) == []
    assert b"[DONE]" not in content


async def test_the_setting_cuts_every_reply_at_its_word():
    _, content = await answer("Hello there", cancel_after_words=4)
    assert len(text(parsed(content)).split()) == 4
    assert finishes(parsed(content)) == []


async def test_words_of_reasoning_count_for_a_cut():
    _, content = await answer(instructions(words(9, reasoning=5), cut("cancel", after_words=7)))
    found = parsed(content)
    assert [len(text(found, kind).split()) for kind in ("reasoning", "content")] == [5, 2]


async def test_a_stall_is_silence_and_loses_nothing():
    began = time.monotonic()
    slow = await chunks(instructions(words(20), stall(0.2, after_words=5)))
    assert time.monotonic() - began >= 0.2
    assert len(text(slow).split()) == 20


async def test_malformed_arguments_are_sent_as_they_are():
    found = await chunks(instructions(malformed_call("add", '{"a": 1,,')))
    pieces = [piece for many in deltas(found, "tool_calls") for piece in many]
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"a": 1,,'
    assert finishes(found) == [(0, "tool_calls")]


async def test_counts_and_the_finish_reason_can_be_ordered():
    found = await chunks(
        instructions(words(3), usage(11, 22), finish_reason("length")),
        stream_options={"include_usage": True},
    )
    assert finishes(found) == [(0, "length")]
    assert found[-1]["usage"] == {"prompt_tokens": 11, "completion_tokens": 22, "total_tokens": 33}


def test_the_helper_refuses_what_is_no_script():
    with pytest.raises(ValueError, match="length"):
        instructions(words(-1))
    with pytest.raises(ValueError, match="exactly one"):
        instructions({"text_message": {"length": 1}, "finish_reason": "stop"})


# ---- blocks that nobody would write on purpose --------------------------------------------------


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_what_only_python_calls_json_is_no_bare(number):
    said = bare(f'{{"messages": [{{"tool_call": [{{"name": "a", "args": {{"x": {number}}}}}]}}]}}')
    assert text(await chunks(said)).endswith(f"\n\n{said}")


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
    status, content = await answer(bare(f'{{"messages": [{items}]}}'))
    assert status == 400
    assert json.loads(content)["error"]["message"].startswith("The instruction block is no script")


async def test_a_large_whole_number_in_an_argument_is_sent_as_it_is():
    said = bare(
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
    assert text(await chunks(bare(f'{{"messages": [{items}]}}'))) == said


@pytest.mark.parametrize(
    "items",
    [
        r'{"tool_call": [{"name": "\ud83d", "id": "\ud83d", "args": {"\ud83d": "\ud83d"}}]}',
        r'{"malformed_tool_call": {"name": "a", "arguments": "\ud83d"}}',
        r'{"finish_reason": "\ud83d"}',
    ],
)
async def test_half_a_character_breaks_no_stream(items):
    status, content = await answer(bare(f'{{"messages": [{items}]}}'))
    assert (status, content[-14:]) == (200, b"data: [DONE]\n\n")


async def test_half_a_character_in_a_failure_keeps_its_status():
    said = r'{"messages": [{"error": {"status": 418, "message": "\ud83d", "code": "\ud83d"}}]}'
    status, content = await answer(bare(said))
    assert status == 418
    assert json.loads(content)["error"]["message"] == "\ufffd"


async def test_of_several_blocks_the_first_one_counts():
    one, two = (bare(f'{{"messages": [{{"text_message": {{"text": "{n}"}}}}]}}') for n in "12")
    assert text(await chunks(f"{one} {two}")) == "1"


async def test_a_model_without_thinking_does_not_think():
    found = await chunks("Why?\nReason: so", model="lorem-plain")
    assert deltas(found, "reasoning") == []
    assert text(found).endswith("Why?\nReason: so")


@pytest.mark.parametrize("reasoning", [{}, {"length": None}, None])
async def test_reasoning_without_a_length_is_none(reasoning):
    script = {"reasoning": reasoning, "messages": [{"text_message": {"length": 3}}]}
    found = await chunks(bare(json.dumps(script)))
    assert deltas(found, "reasoning") == []
    assert len(text(found).split()) == 3
