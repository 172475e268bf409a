"""What is sent of a history that is too long: properties of every conversation and summary."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.services.compaction.covered import CoveredHistory
from mochi_server.services.compaction.fitting import LongHistory
from mochi_server.services.compaction.text import start_of_last_turn, turns_forward
from mochi_server.services.history import FittedHistory, estimate, fit
from mochi_server.sessions.types import HistorySummary
from tests.support.histories import BUDGET, CONVERSATION, MOST, SYSTEM, calls_are_whole

NOTES = "- The project is called Marmalade."


def covered(count: int, *, requested: bool = False, text: str = NOTES) -> CoveredHistory:
    return CoveredHistory(HistorySummary(text=text, covers="0" * 32, requested=requested), count)


def compacted(
    messages: list[dict[str, Any]],
    summary: CoveredHistory | None,
    system: dict[str, Any] | None = None,
    budget: int | None = None,
    most: int | None = None,
) -> FittedHistory:
    history = LongHistory(
        system=system,
        backwards=lambda count: islice(reversed(messages), count),
        total=len(messages),
        budget=budget,
        ratio=1.0,
        max_messages=most,
    )
    return history.fit_compacted(summary)


@given(CONVERSATION, SYSTEM, BUDGET, MOST, st.data())
def test_each_message_is_sent_summarised_or_dropped(
    messages: list[dict[str, Any]],
    system: dict[str, Any] | None,
    budget: int | None,
    most: int | None,
    data: st.DataObject,
) -> None:
    """Exactly one of them; the system prompt, the summary and the last turn are in this order."""
    ends = [0, *(end for _, end in turns_forward(messages)[:-1])]
    count = data.draw(st.sampled_from(ends))
    summary = covered(count, requested=data.draw(st.booleans())) if count else None
    found = compacted(messages, summary, system, budget, most)
    sent = [*found.messages]
    if system is not None:
        assert sent.pop(0) == system
    if found.summarised:
        note = sent.pop(0)
        assert note["role"] == "user"
        assert NOTES in note["content"]
        assert found.summarised == count
    numbers = [message["n"] for message in sent]
    assert numbers == sorted({*numbers})
    assert all(number >= found.summarised for number in numbers)
    assert found.summarised + found.dropped + len(sent) == len(messages)
    assert max(n for n, each in enumerate(messages) if each["role"] == "user") in numbers
    calls_are_whole(sent)
    assert found.tokens == sum(estimate(message, 1.0) for message in found.messages)
    plain = fit(system, reversed(messages), total=len(messages), budget=budget, ratio=1.0)
    if budget is not None and plain.tokens <= budget:
        assert found.tokens <= budget


LONG = "\n".join(f"line {number}" for number in range(1_000))


def tool_turn(content: str) -> list[dict[str, Any]]:
    call = {"function": {"name": "read", "arguments": {}}, "id": "c1"}
    return [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": content, "tool_name": "read", "tool_call_id": "c1"},
        {"role": "assistant", "content": "I have."},
    ]


def test_old_results_are_made_short_before_anything_is_left_out() -> None:
    """The model sees their first and last lines, and how much is missing."""
    messages = [*tool_turn(LONG), *tool_turn("short"), {"role": "user", "content": "Next."}]
    found = compacted(messages, None, budget=2_000)
    assert (found.dropped, found.shortened) == (0, 1)
    first, second = (each["content"] for each in found.messages if each["role"] == "tool")
    assert first.startswith("line 0\nline 1\n")
    assert first.endswith("\nline 998\nline 999")
    assert "lines, " in first
    assert len(first) < 1_100
    assert second == "short"


def test_of_a_long_line_in_a_result_the_beginning_and_the_end_stay() -> None:
    """A short line beside it is not all that is left."""
    page = f"HTTP 200\n{'a' * 5_000}{'z' * 5_000}\nEnd."
    messages = [*tool_turn(page), {"role": "user", "content": "Next."}]
    found = compacted(messages, None, budget=2_000)
    [result] = [str(each["content"]) for each in found.messages if each["role"] == "tool"]
    assert result.startswith("HTTP 200\naaaaa")
    assert result.endswith("zzzzz\nEnd.")
    assert 800 < len(result) < 1_100


def test_results_of_the_last_turn_stay_whole_while_they_fit() -> None:
    """The model works with them; those of its last step stay whatever their size."""
    messages = [{"role": "user", "content": "x" * 3_000}, *tool_turn(LONG)[:3]]
    found = compacted(messages, None, budget=10_000)
    assert (found.dropped, found.shortened) == (1, 0)
    longer = [*tool_turn(LONG), *tool_turn(LONG)[1:3]]
    found = compacted(longer, None, budget=12_000)
    assert (found.dropped, found.shortened) == (0, 1)
    assert found.messages[-1]["content"] == LONG


def test_a_summary_made_for_a_larger_window_is_left_out() -> None:
    messages = [*tool_turn("x" * 400), {"role": "user", "content": "Next."}]
    found = compacted(messages, covered(4, text="n" * 3_000), budget=400)
    assert (found.summarised, found.dropped) == (0, 4)


@pytest.mark.parametrize("requested", [False, True])
def test_a_summary_that_is_not_needed_is_sent_only_if_a_person_wanted_it(requested: bool) -> None:
    messages = [*tool_turn("x"), {"role": "user", "content": "Next."}]
    found = compacted(messages, covered(4, requested=requested))
    assert found.summarised == (4 if requested else 0)
    assert found.messages[-1] == messages[-1]


def test_a_summary_of_all_but_the_last_turn_ends_before_its_question() -> None:
    messages = [*tool_turn("x"), *tool_turn("y")]
    assert start_of_last_turn(messages) == 4
    assert start_of_last_turn([]) == 0
