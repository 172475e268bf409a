"""Stored messages as a history that every vendor takes.

A session may hold what other vendors' models said, what a crash left behind, and what old writers
wrote. Vendors refuse the whole request for a call without a result, a result without a call, or an
id or a name with characters they do not know; some models' templates refuse two messages of the
user in a row.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from ...errors import JSONObject
from ...protocol.files import RequestFile, files_of
from ...protocol.llm_response import read_arguments
from .tools import stored_calls

LEFT_OUT: Final = "(What was said before is left out.)"
NO_RESULT: Final = "Error: the call was interrupted."
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 60
"""Characters of a name that was changed, a number behind it not counted."""


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """A call of a reply, with the id and the name that the vendor takes."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserStep:
    """What the user said; several messages in a row are one."""

    text: str
    files: Sequence[RequestFile] = ()
    """They come before the text."""


@dataclass(frozen=True, slots=True)
class ReplyStep:
    """A reply of a model; there may be several in a row."""

    message: Mapping[str, Any]
    calls: Sequence[HistoryCall]

    @property
    def text(self) -> str:
        return _text_of(self.message)


@dataclass(frozen=True, slots=True)
class ResultsStep:
    """The results of all calls of the reply before, in their order; None for an interrupted one."""

    results: Sequence[tuple[HistoryCall, str | None]]
    images: Mapping[str, Sequence[RequestFile]] = field(default_factory=dict)
    """Images of results by the ids of their calls."""

    @property
    def all_images(self) -> list[RequestFile]:
        """The images of all results, in their order."""
        return [image for call, _ in self.results for image in self.images.get(call.id, ())]


HistoryStep: TypeAlias = UserStep | ReplyStep | ResultsStep
LegalId: TypeAlias = Callable[[str, bool], str]
"""Makes a stored id one that the vendor takes; told whether the asked model itself gave it."""


class ToolNames:
    """The names of tools as a vendor takes them, and back: of those offered, and of past calls."""

    def __init__(self, tools: Iterable[Mapping[str, Any]], legal: re.Pattern[str]) -> None:
        self._legal = legal
        self._sent: dict[str, str] = {}
        self._stored: dict[str, str] = {}
        offered = [tool["function"]["name"] for tool in tools]
        for name in sorted(offered, key=lambda name: not legal.fullmatch(name)):
            self.to_vendor(name)

    def to_vendor(self, name: str) -> str:
        """Return the name to send, which is the same where that is legal."""
        if name not in self._sent:
            base = sent = name if self._legal.fullmatch(name) else _legal_name(name)
            number = 1
            while sent in self._stored:
                number += 1
                sent = f"{base[:_LONGEST]}_{number}"
            self._sent[name], self._stored[sent] = sent, name
        return self._sent[name]

    def from_vendor(self, name: str) -> str:
        return self._stored.get(name, name)

    def find_in(self, text: str) -> str | None:
        """Return the name of the first tool whose name to the vendor is in a text."""
        matches = (
            (match.start(), -len(sent), stored)
            for sent, stored in self._stored.items()
            if (match := re.search(rf"(?<!\w){re.escape(sent)}(?!\w)", text))
        )
        return min(matches, default=(0, 0, None))[2]


def _legal_name(name: str) -> str:
    legal = _ILLEGAL.sub("_", name)[:_LONGEST]
    return legal if legal[:1].isalpha() else f"_{legal}"


def short_id(text: str) -> str:
    """Return an id that every vendor takes: nine letters and digits, the same for the same text."""
    return hashlib.blake2s(text.encode("utf-8", "replace")).hexdigest()[:9]


def _text_of(message: Mapping[str, Any]) -> str:
    text = str(message.get("content") or "")
    return text if text.strip() else ""


def system_prompt(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the system prompt, which vendors take as a field, or as the first message."""
    texts = (_text_of(message) for message in messages if message.get("role") == "system")
    return "\n\n".join(filter(None, texts))


def normalize_history(
    messages: Iterable[JSONObject], model: str, *, names: ToolNames, legal_id: LegalId
) -> list[HistoryStep]:
    """Return the steps of a stored history, for a model by its plain name.

    The user begins; each call has one result, after its reply; no id comes twice.
    """
    normalizer = HistoryNormalizer(model, names, legal_id)
    for message in messages:
        match message.get("role"):
            case "user":
                normalizer.add_user(_text_of(message), files_of(message))
            case "assistant":
                normalizer.add_reply(message)
            case "tool":
                normalizer.add_result(message)
    normalizer.close_calls()
    return normalizer.steps


class HistoryNormalizer:
    """Makes the steps of one history, message by message."""

    def __init__(self, model: str, names: ToolNames, legal_id: LegalId) -> None:
        self.steps: list[HistoryStep] = []
        self._model = model
        self._names = names
        self._legal_id = legal_id
        self._open: dict[str, tuple[str, HistoryCall]] = {}
        """The calls without a result so far and their stored names, by the id that is sent."""
        self._sent_ids: dict[str, deque[str]] = {}
        """Of the calls of one stored id, the ids that are sent."""
        self._results: list[tuple[HistoryCall, str | None]] = []
        self._images: dict[str, Sequence[RequestFile]] = {}
        self._ids: set[str] = set()

    def add_user(self, text: str, files: Sequence[RequestFile] = ()) -> None:
        if not text and not files:
            return
        self.close_calls()
        if self.steps and isinstance(last := self.steps[-1], UserStep):
            joined = "\n\n".join(filter(None, [last.text, text]))
            self.steps[-1] = UserStep(joined, [*last.files, *files])
        else:
            self.steps.append(UserStep(text, files))

    def add_reply(self, message: Mapping[str, Any]) -> None:
        """Add a reply; one with nothing but thinking is left out, since vendors refuse it."""
        stored = stored_calls(message)
        if not stored and not _text_of(message):
            return
        self.close_calls()
        if not self.steps:
            self.steps.append(UserStep(LEFT_OUT))
        replied = str(message.get("model") or "")
        own = replied == self._model or replied.endswith(f"/{self._model}")
        for entry in stored:
            function = entry.get("function") or {}
            call_id, name = str(entry.get("id") or ""), str(function.get("name") or "")
            arguments = read_arguments(function.get("arguments"))
            call = HistoryCall(
                self._new_id(call_id, own=own), self._names.to_vendor(name), arguments
            )
            self._open[call.id] = name, call
            self._sent_ids.setdefault(call_id, deque()).append(call.id)
        self.steps.append(ReplyStep(message, [call for _, call in self._open.values()]))

    def _new_id(self, stored: str, *, own: bool) -> str:
        number = len(self._ids)
        sent = self._legal_id(stored, own) if stored else short_id(str(number))
        while sent in self._ids:
            sent = short_id(f"{stored}/{number}")
            number += 1
        self._ids.add(sent)
        return sent

    def add_result(self, message: Mapping[str, Any]) -> None:
        """Add the result of a call: found by its id, else by its name, else the first open one."""
        stored_id, name = message.get("tool_call_id"), message.get("tool_name")
        sent_id: str | None = None
        if stored_id:
            ids = self._sent_ids.get(str(stored_id))
            while ids and sent_id not in self._open:
                sent_id = ids.popleft()
        else:
            of_name = (call_id for call_id, (its, _) in self._open.items() if its == name)
            sent_id = next(of_name, next(iter(self._open), None))
        if sent_id in self._open:
            _, call = self._open.pop(sent_id)
            self._results.append((call, str(message.get("content") or "")))
            if images := files_of(message):
                self._images[call.id] = images

    def close_calls(self) -> None:
        """Add the results of the last reply's calls, in their order."""
        results = [*self._results, *((call, None) for _, call in self._open.values())]
        images = self._images
        self._open, self._sent_ids, self._results, self._images = {}, {}, [], {}
        if results and isinstance(last := self.steps[-1], ReplyStep):
            order = {call.id: place for place, call in enumerate(last.calls)}
            results.sort(key=lambda pair: order[pair[0].id])
            self.steps.append(ResultsStep(results, images))


def alternate(
    turns: Iterable[tuple[str, list[dict[str, Any]]]], *, key: str
) -> list[dict[str, Any]]:
    """Return messages with ``key`` whose roles alternate: turns of one role in a row are joined."""
    return [
        {"role": role, key: [part for _, parts in group for part in parts]}
        for role, group in groupby(turns, key=itemgetter(0))
    ]
