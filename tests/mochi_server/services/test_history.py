"""What of a conversation fits: properties that hold for every conversation and every budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.services.history import FittedHistory, estimate, fit
from tests.support.histories import BUDGET, CONVERSATION, MOST, SYSTEM, calls_are_whole


def fitted(
    messages: list[dict[str, Any]],
    system: dict[str, Any] | None = None,
    **options: Any,
) -> FittedHistory:
    return fit(system, reversed(messages), total=len(messages), **{"budget": None, **options})


@given(CONVERSATION, SYSTEM, BUDGET, MOST, st.sampled_from([1.0, 4.0, 6.0]))
def test_what_is_sent_is_a_sound_part_of_the_conversation(
    messages: list[dict[str, Any]],
    system: dict[str, Any] | None,
    budget: int | None,
    most: int | None,
    ratio: float,
) -> None:
    """System prompt and last question stay, order stays, calls stay with their results, and the
    budget holds unless only the least is left."""
    found = fitted(messages, system, budget=budget, max_messages=most, ratio=ratio)
    sent = list(found.messages)
    if system is not None:
        assert sent.pop(0) == system
    numbers = [message["n"] for message in sent]
    assert numbers == sorted(numbers)
    assert all(messages[number] == message for number, message in zip(numbers, sent, strict=True))
    assert found.dropped == len(messages) - len(sent)
    last = max(n for n, message in enumerate(messages) if message["role"] == "user")
    assert last in numbers
    calls_are_whole(sent)
    before = [n for n in numbers if n < last]
    assert before == list(range(before[0], last)) if before else True
    if before and before[0] > 0:
        assert messages[before[0]]["role"] == "user"  # old turns go whole
    assert found.tokens == sum(estimate(message, ratio) for message in found.messages)
    over = (budget is not None and found.tokens > budget) or (most is not None and len(sent) > most)
    if over:
        assert sent == _least(messages, last)


def _least(messages: list[dict[str, Any]], last: int) -> list[dict[str, Any]]:
    steps = [n for n, m in enumerate(messages) if n > last and m["role"] == "assistant"]
    return [messages[last], *(messages[steps[-1] :] if steps else [])]


@given(CONVERSATION, SYSTEM)
def test_without_a_limit_everything_is_sent(
    messages: list[dict[str, Any]], system: dict[str, Any] | None
) -> None:
    found = fitted(messages, system)
    assert found.messages == ([system] if system else []) + messages
    assert found.dropped == 0


@given(CONVERSATION, st.integers(1, 1500))
def test_more_room_never_sends_less(messages: list[dict[str, Any]], budget: int) -> None:
    less = fitted(messages, budget=budget)
    more = fitted(messages, budget=budget * 2)
    assert len(more.messages) >= len(less.messages)


def test_a_long_history_is_read_only_as_far_as_it_fits() -> None:
    """Ten thousand old messages cost nothing."""
    read = []

    def backwards() -> Any:
        for number in range(10_000):
            read.append(number)
            yield {"role": "assistant" if number % 2 else "user", "content": "x" * 396}

    found = fit(None, backwards(), total=10_000, budget=1_000)
    assert len(found.messages) == 9
    assert found.dropped == 9_991
    assert len(read) < 15


@pytest.mark.parametrize("content", [None, "", 7, ["x"]])
def test_odd_content_of_old_files_is_counted_as_none(content: Any) -> None:
    assert estimate({"role": "user", "content": content}) == 4


def test_thinking_and_calls_are_counted() -> None:
    """They are sent, so they cost."""
    message = {"role": "assistant", "content": "x" * 40, "thinking": "y" * 40}
    assert estimate(message) == 24
    with_calls = {**message, "tool_calls": [{"function": {"name": "a", "arguments": {}}}]}
    assert estimate(with_calls) > 24
