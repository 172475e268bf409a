"""Stored messages as the steps of a conversation that every vendor takes.

A session may hold what other vendors' models said, what a crash left behind, and what old writers
wrote. Vendors refuse the whole request for a call without a result, a result without a call, an id
or a name in the wrong letters; some models' templates refuse two questions in a row.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ...errors import JSONObject
from .tool_calls import calls_of, parsed

LEFT_OUT: Final = "(What was said before is left out.)"
NO_RESULT: Final = "Error: the call was interrupted."
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 60
"""Letters of a name that was changed, a number behind it not counted."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a reply, as the vendor takes it."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What the user said; several messages in a row are one."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply of a model; there may be several in a row."""

    message: Mapping[str, Any]
    calls: Sequence[Call]

    @property
    def text(self) -> str:
        """What it said; nothing for blanks."""
        return text_of(self.message)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all calls of the reply before, in their order; None for one that broke off."""

    results: Sequence[tuple[Call, str | None]]


Step: TypeAlias = Question | Answer | Results
LegalId: TypeAlias = Callable[[str, bool], str]
"""An id as the vendor takes it, from the stored one and whether the asked model gave it."""


class Names:
    """The names of tools as a vendor takes them, and back."""

    def __init__(self, tools: Iterable[Mapping[str, Any]], legal: re.Pattern[str]) -> None:
        """Name the tools that are offered; those of past calls follow as they come."""
        self._legal = legal
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        offered = [str((tool.get("function") or {}).get("name")) for tool in tools]
        for name in sorted(offered, key=lambda name: not legal.fullmatch(name)):
            self.theirs(name)

    def theirs(self, name: str) -> str:
        """The name that is sent: the same where that is legal, always the same for one of ours."""
        if name not in self._theirs:
            base = plain = name if self._legal.fullmatch(name) else _plain(name)
            number = 1
            while plain in self._ours:
                number += 1
                plain = f"{base[:_LONGEST]}_{number}"
            self._theirs[name], self._ours[plain] = plain, name
        return self._theirs[name]

    def ours(self, name: str) -> str:
        """The name of a tool that the model calls."""
        return self._ours.get(name, name)

    def find_in(self, text: str) -> str | None:
        """Return the first tool, by our name, whose name as the vendor takes it is in a text."""
        found = (
            (match.start(), -len(theirs), ours)
            for theirs, ours in self._ours.items()
            if (match := re.search(rf"(?<!\w){re.escape(theirs)}(?!\w)", text))
        )
        return min(found, default=(0, 0, None))[2]


def _plain(name: str) -> str:
    plain = _ODD.sub("_", name)[:_LONGEST]
    return plain if plain[:1].isalpha() else f"_{plain}"


def short_id(text: str) -> str:
    """An id that every vendor takes: nine letters and digits, the same for the same text."""
    return hashlib.blake2s(text.encode("utf-8", "replace")).hexdigest()[:9]


def is_of(message: Mapping[str, Any], model: str) -> bool:
    """Whether a stored reply is of the model with this plain name."""
    stored = str(message.get("model") or "")
    return stored == model or stored.endswith(f"/{model}")


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message; nothing for blanks."""
    text = str(message.get("content") or "")
    return text if text.strip() else ""


def system_of(messages: Iterable[Mapping[str, Any]]) -> str:
    """The system prompt: a field of its own, or the first message."""
    texts = (text_of(message) for message in messages if message.get("role") == "system")
    return "\n\n".join(filter(None, texts))


def steps_of(
    messages: Iterable[JSONObject], model: str, *, names: Names, legal_id: LegalId
) -> list[Step]:
    """The steps: begun by the user, each call with one result right after its reply.

    Args:
        messages: As they are stored.
        model: The plain name of the model that is asked.
        names: Of the tools.
        legal_id: Makes ids legal; that they differ is seen to here.
    """
    walk = _Walk(model, names, legal_id)
    for message in messages:
        match message.get("role"):
            case "user":
                walk.ask(text_of(message))
            case "assistant":
                walk.answer(message)
            case "tool":
                walk.add_result(message)
    walk.close_calls()
    return walk.steps


@dataclass(slots=True)
class _Walk:
    """The steps as far as they are made."""

    model: str
    names: Names
    legal_id: LegalId
    steps: list[Step] = field(default_factory=list)
    _open: dict[str, tuple[str, Call]] = field(default_factory=dict)
    """The calls that have no result yet and their stored names, by the id that is sent."""
    _sent_ids: dict[str, deque[str]] = field(default_factory=dict)
    """Of the calls of one stored id, the ids that are sent."""
    _results: list[tuple[Call, str | None]] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def ask(self, text: str) -> None:
        if not text:
            return
        self.close_calls()
        if self.steps and isinstance(last := self.steps[-1], Question):
            self.steps[-1] = Question(f"{last.text}\n\n{text}")
        else:
            self.steps.append(Question(text))

    def answer(self, message: Mapping[str, Any]) -> None:
        stored = calls_of(message)
        if not stored and not text_of(message):
            return  # thoughts alone, which vendors refuse as a reply
        self.close_calls()
        if not self.steps:
            self.steps.append(Question(LEFT_OUT))
        own = is_of(message, self.model)
        for call in stored:
            function = call.get("function") or {}
            call_id, name = str(call.get("id") or ""), str(function.get("name") or "")
            made = Call(self._new_id(call_id, own=own), self.names.theirs(name), _object(function))
            self._open[made.id] = name, made
            self._sent_ids.setdefault(call_id, deque()).append(made.id)
        self.steps.append(Answer(message, [made for _, made in self._open.values()]))

    def _new_id(self, stored: str, *, own: bool) -> str:
        number = len(self._ids)
        found = self.legal_id(stored, own) if stored else short_id(str(number))
        while found in self._ids:
            found = short_id(f"{stored}/{number}")
            number += 1
        self._ids.add(found)
        return found

    def add_result(self, message: Mapping[str, Any]) -> None:
        """The result of its call: by the id, else by the name, else of the first open one."""
        given, name = message.get("tool_call_id"), message.get("tool_name")
        found: str | None = None
        if given:
            ids = self._sent_ids.get(str(given))
            while ids and found not in self._open:
                found = ids.popleft()
        else:
            of_name = (call_id for call_id, (its, _) in self._open.items() if its == name)
            found = next(of_name, next(iter(self._open), None))
        if found in self._open:  # else its call is not there; the vendor would refuse everything
            _, call = self._open.pop(found)
            self._results.append((call, str(message.get("content") or "")))

    def close_calls(self) -> None:
        results = [*self._results, *((call, None) for _, call in self._open.values())]
        self._open, self._sent_ids, self._results = {}, {}, []
        if results and isinstance(last := self.steps[-1], Answer):
            order = {call.id: place for place, call in enumerate(last.calls)}
            self.steps.append(Results(sorted(results, key=lambda one: order[one[0].id])))


def _object(function: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a stored call."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    return arguments if isinstance(arguments, dict) else {}
