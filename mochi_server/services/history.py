"""Fits the history of a conversation to what is sent to the model.

The file keeps everything. What is sent must fit the context window: the system prompt and the
last turn stay, older turns are left out whole and oldest first, and within the last turn older
pairs of calls and results. How many messages were left out is told to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson
from pydantic import JsonValue

from ..constants import CHARACTERS_PER_TOKEN
from ..errors import JSONObject
from ..sessions import ChatSession
from .attachments import attached_characters, attached_tokens

MESSAGE_TOKENS = 4
"""Tokens that a chat template adds around each message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedHistory:
    """The messages to send."""

    messages: list[JSONObject]
    tokens: int
    """Estimated tokens of the messages."""
    dropped: int
    """Messages left out."""
    fits: bool
    """Whether the limits have left out nothing."""
    summarised: int = 0
    """Messages in whose place is a summary, which is one of those to send."""
    shortened: int = 0
    """Results of tools of which the middle is left out."""


def estimate(message: JSONObject, ratio: float = CHARACTERS_PER_TOKEN) -> int:
    """Estimate the tokens of a stored message, at so many characters a token."""
    size = len(_text(message.get("content"))) + len(_text(message.get("thinking")))
    size += attached_characters(message)
    if calls := message.get("tool_calls"):
        size += len(orjson.dumps(calls))
    return int(size / ratio) + MESSAGE_TOKENS + attached_tokens(message)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def fit(
    system: JSONObject | None,
    backwards: Iterable[JSONObject],
    *,
    total: int,
    budget: int | None,
    ratio: float = CHARACTERS_PER_TOKEN,
    max_messages: int | None = None,
    shorten: Callable[[JSONObject], JSONObject] | None = None,
) -> FittedHistory:
    """Return the system prompt and the last turns that fit the budget of tokens; None: no limit.

    The last turn always stays, shortened if need be. ``backwards`` yields the messages after the
    system prompt, the last one first, and is read only as far as they fit; ``total`` is their
    number. ``shorten`` makes older messages of the last turn shorter before any is left out.
    """
    left = _Budget(budget, max_messages)
    used = estimate(system, ratio) if system else 0
    count = 0
    fits = True
    turns: list[list[JSONObject]] = []
    for turn in turns_of(backwards):
        cost = _cost(turn, ratio)
        if not left.allows(used + cost, count + len(turn)):
            fits = False
            if turns:
                break
            turn = _shorten(turn, left, used, ratio, shorten)  # noqa: PLW2901 - it must stay
            cost = _cost(turn, ratio)
        turns.append(turn)
        used += cost
        count += len(turn)
    messages = [message for turn in reversed(turns) for message in turn]
    if system:
        messages.insert(0, system)
    return FittedHistory(messages=messages, tokens=used, dropped=total - count, fits=fits)


def turns_of(backwards: Iterable[JSONObject]) -> Iterator[list[JSONObject]]:
    """Yield each turn, last one first; messages before the first question are one more."""
    turn: list[JSONObject] = []
    for message in backwards:
        turn.append(message)
        if message.get("role") == "user":
            yield turn[::-1]
            turn = []
    if turn:
        yield turn[::-1]


def _cost(messages: Iterable[JSONObject], ratio: float) -> int:
    return sum(estimate(message, ratio) for message in messages)


@dataclass(frozen=True, slots=True)
class _Budget:
    tokens: int | None
    messages: int | None

    def allows(self, tokens: int, messages: int) -> bool:
        within = self.tokens is None or tokens <= self.tokens
        return within and (self.messages is None or messages <= self.messages)


def _shorten(
    turn: Sequence[JSONObject],
    left: _Budget,
    used: int,
    ratio: float,
    shorten: Callable[[JSONObject], JSONObject] | None,
) -> list[JSONObject]:
    """Drop the oldest steps of the last turn; its question and its last step always stay."""
    question, steps = turn[0], _steps(turn[1:])
    if shorten is not None:
        steps[:-1] = [[*map(shorten, step)] for step in steps[:-1]]
    while len(steps) > 1:
        rest = [question, *(item for step in steps for item in step)]
        if left.allows(used + _cost(rest, ratio), len(rest)):
            break
        del steps[0]
    return [question, *(item for step in steps for item in step)]


def _steps(messages: Sequence[JSONObject]) -> list[list[JSONObject]]:
    steps: list[list[JSONObject]] = []
    for message in messages:
        if message.get("role") != "tool" or not steps:
            steps.append([])
        steps[-1].append(message)
    return steps


def objects(messages: Iterable[JsonValue]) -> Iterator[JSONObject]:
    """Skip entries that are no objects: they are kept in the file and never sent."""
    return (message for message in messages if isinstance(message, dict))


def system_of(session: ChatSession) -> JSONObject | None:
    first = session.stored(0) if len(session.messages) else None
    return first if isinstance(first, dict) and first.get("role") == "system" else None


def usage_of(backwards: Iterable[JSONObject], limit: int | None) -> tuple[int, str | None]:
    """Return the tokens of a conversation, and the model of its last reply.

    The provider's own count where there is one, plus an estimate of what came after it; reads no
    further back than that, or than ``limit`` tokens.
    """
    tokens = 0
    for message in backwards:
        prompt, generated = message.get("prompt_eval_count"), message.get("eval_count")
        if message.get("role") == "assistant" and isinstance(prompt, int) and prompt:
            model = message.get("model")
            counted = prompt + (generated if isinstance(generated, int) else 0)
            return tokens + counted, model if isinstance(model, str) else None
        tokens += estimate(message)
        if limit is not None and tokens > limit:
            break
    return tokens, None
