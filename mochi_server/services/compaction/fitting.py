"""Fits a history that is too long: old results of tools become short, old messages a summary.

Each message is sent, summarised or dropped: exactly one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pydantic import JsonValue

from ...errors import JSONObject
from ..history import FittedHistory, estimate, fit
from .covered import CoveredHistory

RESULT_CHARACTERS = 2_000
"""Longest result of a tool that stays as it is where a history does not fit."""
HEAD_CHARACTERS, TAIL_CHARACTERS = 600, 300
"""What stays of the beginning and of the end of a longer one, whole lines unless one is long."""
MOST_OF_BUDGET = 0.5
"""Share of the budget above which a summary, made for a larger window, is not sent."""
MARK_CHARACTERS = 12
"""Digits of the digest by which the end of a summary is known."""

BEGIN = (
    "[Summary {mark} of the earlier part of this conversation, whose messages are not shown any "
    "more. The server made it. It is a note: do not answer it, and take no text in it for a "
    "request that is made now.]"
)
END = "[End of summary {mark}]"
CUT = "[... {lines:,} lines, {characters:,} characters of this old result are left out ...]"


def note_of(covered: CoveredHistory) -> JSONObject:
    """Return the message that stands for the covered ones."""
    summary = covered.summary
    mark = summary.covers[:MARK_CHARACTERS]
    text = "\n".join([BEGIN.format(mark=mark), summary.text, END.format(mark=mark)])
    return {"role": "user", "content": text}


def _with_any_mark(text: str) -> str:
    return re.escape(text.format(mark="MARK")).replace("MARK", r"\w*")


_NOTE = re.compile(f"{_with_any_mark(BEGIN)}\n(.*)\n{_with_any_mark(END)}", re.DOTALL)


def text_of_note(message: JsonValue) -> str | None:
    """Return the summary in a message that ``note_of`` has made; None if it is another one."""
    if not isinstance(message, dict) or message.get("role") != "user":
        return None
    note = _NOTE.fullmatch(str(message.get("content")))
    return None if note is None else note[1]


class ResultShortener:
    """Makes old results of tools short, and counts them."""

    def __init__(self) -> None:
        self._made: dict[int, JSONObject] = {}

    def shorten(self, message: JSONObject) -> JSONObject:
        """Return a message with the first and last lines of its result, if it is a long one."""
        content = message.get("content")
        if message.get("role") != "tool" or not isinstance(content, str):
            return message
        if len(content) <= RESULT_CHARACTERS:
            return message
        made: JSONObject = {**message, "content": _ends_of(content)}
        self._made[id(made)] = made
        return made

    def before_last_turn(self, backwards: Iterable[JSONObject]) -> Iterator[JSONObject]:
        """Yield messages, the last one first; results before the last question are short."""
        is_old = False
        for message in backwards:
            yield self.shorten(message) if is_old else message
            is_old = is_old or message.get("role") == "user"

    def counted(self, fitted: FittedHistory) -> FittedHistory:
        """Return a history with the number of results in it that were made short."""
        return replace(fitted, shortened=sum(id(each) in self._made for each in fitted.messages))


def _ends_of(text: str) -> str:
    head, tail = text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]
    if (end := head.rfind("\n", HEAD_CHARACTERS // 2)) >= 0:
        head = head[:end]
    if (end := tail.find("\n", 0, TAIL_CHARACTERS // 2)) >= 0:
        tail = tail[end + 1 :]
    middle = text[len(head) : len(text) - len(tail)]
    cut = CUT.format(lines=middle.strip("\n").count("\n") + 1, characters=len(middle))
    return f"{head}\n{cut}\n{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LongHistory:
    """A history that may be too long, and what it has to fit."""

    system: JSONObject | None
    backwards: Callable[[int], Iterable[JSONObject]]
    """Yields so many of the last messages, the last one first."""
    total: int
    """Messages after the system prompt."""
    budget: int | None
    ratio: float
    max_messages: int | None

    def fit(self) -> FittedHistory:
        """Return what fits of the history as it is."""
        return self._fit(self.total, self.budget)

    def fit_compacted(self, covered: CoveredHistory | None) -> FittedHistory:
        """Return what fits with short results and, if that is not all, with the summary.

        A summary that a person wanted comes first.
        """
        shortener = ResultShortener()
        first = None
        if covered is not None and covered.summary.requested:
            first = self._with_summary(covered)
        if first is None:
            first = self._fit(self.total, self.budget, shortener)
        if covered is None or first.fits:
            return shortener.counted(first)
        return shortener.counted(self._with_summary(covered, shortener) or first)

    def _with_summary(
        self, covered: CoveredHistory, shortener: ResultShortener | None = None
    ) -> FittedHistory | None:
        """Return what fits behind the summary; None if nothing is, or too little room is left."""
        if covered.count >= self.total:
            return None
        note = note_of(covered)
        tokens = estimate(note, self.ratio)
        if self.budget is not None and tokens > self.budget * MOST_OF_BUDGET:
            return None
        budget = None if self.budget is None else self.budget - tokens
        fitted = self._fit(self.total - covered.count, budget, shortener)
        if budget is not None and fitted.tokens > budget:
            return None
        start = int(self.system is not None)
        messages = [*fitted.messages[:start], note, *fitted.messages[start:]]
        return replace(
            fitted,
            messages=messages,
            tokens=fitted.tokens + tokens,
            summarised=covered.count,
        )

    def _fit(
        self, total: int, budget: int | None, shortener: ResultShortener | None = None
    ) -> FittedHistory:
        backwards = self.backwards(total)
        return fit(
            self.system,
            backwards if shortener is None else shortener.before_last_turn(backwards),
            total=total,
            budget=budget,
            ratio=self.ratio,
            max_messages=self.max_messages,
            shorten=None if shortener is None else shortener.shorten,
        )
