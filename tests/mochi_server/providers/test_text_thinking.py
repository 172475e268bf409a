"""Thinking that a server leaves in the text, at the beginning of a reply."""

from __future__ import annotations

import pytest

from mochi_server.protocol.completions import Chunk, ContentDelta, Finish, ThinkingDelta
from mochi_server.providers.text_thinking import TextThinking, split_unopened

REPLIES = {
    "<think>\nI ponder\n</think>\n\nThe answer": ("I ponder", "The answer"),
    "\n <thinking>I ponder</thinking>The answer": ("I ponder", "The answer"),
    "[THINK]I [ponder]\n\nand <b>[/THINK]The answer\n": ("I [ponder]\n\nand <b>", "The answer\n"),
    "<think></think>\nThe answer": ("", "The answer"),
    "<think>\n\n</think>\n\nThe <think>answer</think>": ("", "The <think>answer</think>"),
    "<think>I ponder": ("I ponder", ""),
    "The <think>answer</think>": ("", "The <think>answer</think>"),
    "<thin": ("", "<thin"),
    "<thirst> is no tag": ("", "<thirst> is no tag"),
    "  The answer ": ("", "  The answer "),
    "": ("", ""),
}


@pytest.mark.parametrize("text", REPLIES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_thinking_is_taken_out_of_the_beginning_of_a_reply(text: str, size: int) -> None:
    stage = TextThinking()
    chunks: list[Chunk] = []
    for at in range(0, len(text), size):
        chunks += stage.add([ContentDelta(text[at : at + size])])
    chunks += stage.add([Finish(reason="stop")])
    thinking = "".join(each.content for each in chunks if isinstance(each, ThinkingDelta))
    answer = "".join(each.content for each in chunks if isinstance(each, ContentDelta))
    assert (thinking, answer) == REPLIES[text]


def test_text_of_a_server_that_separates_thinking_stays_as_it_is() -> None:
    chunks = [ThinkingDelta("I ponder"), ContentDelta("<think>no</think>"), Finish(reason="stop")]
    assert [*TextThinking().add(chunks)] == chunks


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("I ponder\n</think>\n\nThe answer", ("I ponder", "The answer")),
        ("The tag </think> ends it", None),
        ("`</think>`\n", None),
        ("The answer", None),
    ],
)
def test_thinking_without_its_opening_tag_ends_with_a_line(
    text: str, parts: tuple[str, str] | None
) -> None:
    assert split_unopened(text) == parts
