"""Conversations of every shape, for properties of what is sent of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.integers(0, 400).map(lambda size: "x" * size)


def _step(content: str, calls: int, results: list[str]) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if not calls:
        return [message]
    message["tool_calls"] = [
        {"function": {"name": "look", "arguments": {"n": n}}, "id": f"call_{n}"}
        for n in range(calls)
    ]
    answers = [
        {"role": "tool", "content": results[n % len(results)], "tool_call_id": f"call_{n}"}
        for n in range(calls)
    ]
    return [message, *answers]


STEP = st.builds(_step, TEXT, st.integers(0, 3), st.lists(TEXT, min_size=1, max_size=3))
TURN = st.builds(
    lambda question, steps: [
        {"role": "user", "content": question},
        *(message for step in steps for message in step),
    ],
    TEXT,
    st.lists(STEP, max_size=4),
)
CONVERSATION = st.builds(
    lambda greeting, turns: [*greeting, *(message for turn in turns for message in turn)],
    st.one_of(st.just([]), STEP),
    st.lists(TURN, min_size=1, max_size=6),
).map(lambda messages: [{**message, "n": n} for n, message in enumerate(messages)])
SYSTEM = st.one_of(st.none(), TEXT.map(lambda text: {"role": "system", "content": text}))
BUDGET = st.one_of(st.none(), st.integers(1, 1500))
MOST = st.one_of(st.none(), st.integers(1, 12))


def calls_are_whole(sent: list[dict[str, Any]]) -> None:
    """Assert that each call is followed by its result, and each result has its call before it."""
    rest = list(sent)
    while rest:
        message = rest.pop(0)
        assert message["role"] != "tool"
        for call in message.get("tool_calls", []):
            assert rest.pop(0)["tool_call_id"] == call["id"]
