"""What a model is asked, to summarise a conversation or to carry its summary on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..errors import JSONObject
from ..sessions import ChatSession
from .history import MESSAGE_TOKENS, fit
from .summary_text import INSTRUCTION, Said, covered, id_of, is_enough, said, text_of

REPLY_TOKENS: Final = 1024
"""More than the longest summary has; a cut one is no JSON."""
UNKNOWN_WINDOW: Final = 4096
"""Tokens, where nobody says how large the window is."""
PART_TOKENS: Final = 6000
"""A long conversation is read in parts of at most so many tokens, each with the summary so far."""
SHORT_PART_TOKENS: Final = 1000
"""The same, where a chat would have to wait until a part is read."""
MOST_PARTS: Final = 8
"""No more parts than these are read at once: the latest ones."""
SMALLEST_PART: Final = 256
"""Tokens of a part, however small the window."""
MESSAGE_CHARACTERS: Final = 2000
"""Of a longer message in a part, the beginning and the end are read."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How much a model reads and writes at a time, in tokens."""

    prompt: int
    reply: int
    ratio: float
    """Characters a token."""
    part: int = PART_TOKENS
    """Most tokens that the model reads at a time of what it has not in its cache."""

    @classmethod
    def of(
        cls, window: int | None, most: int | None, ratio: float, part: int = PART_TOKENS
    ) -> Measure:
        """For a window of so many tokens, and the most history that is to be sent."""
        size = window or UNKNOWN_WINDOW
        reply = min(REPLY_TOKENS, size // 3)
        return cls(max(min(size - reply, most or size), SMALLEST_PART), reply, ratio, part)

    @property
    def is_least(self) -> bool:
        """Whether nothing shorter would make sense."""
        return self.prompt <= SMALLEST_PART

    def halved(self) -> Measure:
        """For another try after a part was too long after all."""
        return replace(self, prompt=max(self.prompt // 2, SMALLEST_PART))

    def tokens(self, text: str) -> int:
        """About what a text costs."""
        return int(len(text) / self.ratio) + MESSAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Part:
    """One question to the model."""

    messages: list[JSONObject]
    through: Said
    """The last of what the answer will be about."""
    is_last: bool
    """Whether nothing follows it."""
    is_whole: bool = False
    """Whether it is the conversation as the chat sends it."""

    def is_still_in(self, session: ChatSession) -> bool:
        """Whether what was read is in the session now; looked for from its end."""
        through = self.through
        return any(
            text_of(message) == through.text and id_of(message) == through.message_id
            for message in session.tail()
        )


def next_part(
    session: ChatSession, measure: Measure, *, anew: bool = False, cached: bool = False
) -> Part | None:
    """What to ask next; None when the summary is about everything that was said, or too little was.

    Args:
        session: Whose conversation it is.
        measure: What fits.
        anew: Leave the present summary aside.
        cached: The model has just read this conversation, so all of it, as it was sent then,
            costs less than an extract: it need not be read again, nor after this for the chat.
    """
    entries = said(session)
    start = 0 if anew else covered(session.metadata.summary, entries)
    if start == len(entries) or not is_enough(entries):
        return None
    if cached and (messages := _whole(session, measure)) is not None:
        return Part(messages, entries[-1], is_last=True, is_whole=True)
    summary = session.metadata.summary if start else None
    return _extract(entries, start, summary.summary if summary else None, measure)


def _whole(session: ChatSession, measure: Measure) -> list[JSONObject] | None:
    """The conversation as the chat sends it, and the instruction; None if it does not fit."""
    stored = [message for message in session.stored_messages() if isinstance(message, dict)]
    system = stored.pop(0) if stored[0].get("role") == "system" else None
    budget = measure.prompt - measure.tokens(INSTRUCTION)
    fitted = fit(system, reversed(stored), total=len(stored), budget=budget, ratio=measure.ratio)
    if fitted.dropped or fitted.tokens > budget:
        return None
    return [*fitted.messages, {"role": "user", "content": INSTRUCTION}]


def _extract(entries: Sequence[Said], start: int, so_far: str | None, measure: Measure) -> Part:
    """The summary so far and what was said then, as far as it fits, as one text."""
    head = f"Summary so far:\n\n{so_far}\n\nWhat was said then:" if so_far else "What was said:"
    tail = "Now write the summary of all of it."
    room = min(measure.prompt, measure.part) - measure.tokens(INSTRUCTION + head + tail)
    room = max(room, SMALLEST_PART // 2)
    longest = min(MESSAGE_CHARACTERS, int(room * measure.ratio))
    lines = [f"[{entry.role}] {shortened(entry.text, longest)}" for entry in entries[start:]]
    costs = [measure.tokens(line) for line in lines]
    first = _first_within(costs, room * MOST_PARTS)
    count = max(_count_within(costs[first:], room), 1)
    end = first + count
    text = "\n\n".join([head, *lines[first:end], tail])
    messages: list[JSONObject] = [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": text},
    ]
    return Part(messages, entries[start + end - 1], is_last=start + end == len(entries))


def _first_within(costs: Sequence[int], room: int) -> int:
    """Where the longest end begins that fits."""
    return len(costs) - max(_count_within(costs[::-1], room), 1)


def _count_within(costs: Sequence[int], room: int) -> int:
    """How many from the beginning fit."""
    for count, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return count
    return len(costs)


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a longer text."""
    if len(text) <= characters:
        return text
    end = characters // 3
    return f"{text[: characters - end].rstrip()} [...] {text[len(text) - end :].lstrip()}"
