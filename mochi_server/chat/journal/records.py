"""What a journal keeps of a run: its head, its events, and notes for who takes the run up again.

A journal is a sequence of JSON lines. The first is the head; a run that was queued has another one
where it begins. A line that is a list is events:
``[number of the first, entry, entry, …]``, where an entry is

- a list of texts: content deltas, one for each text;
- ``{"thinking": [texts]}``: thinking deltas;
- ``{"agent": [type, name, call id], "texts": [texts]}``: deltas of an agent;
- ``{"event": type, "data": fields}``: any other event.

A line that is an object is a note (:class:`Note`).

During an upgrade, processes of two versions read each other's lines: fields, notes and kinds of
events that are not known are passed over. New ones may be added; none may change its meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Final, Literal

import orjson

from ...errors import JSONObject
from ...protocol import events as protocol
from ...protocol.events import AgentDelta, ContentDelta, Event, ThinkingDelta
from ...providers.base import Think
from ...sessions.codec import encode

RUN_STRIDE: Final = 10**9
"""Most events of a run; the first of run ``n`` of a session is ``(n - 1) * RUN_STRIDE + 1``."""

RunState = Literal["queued", "running", "waiting", "done", "failed", "stopped", "interrupted"]
"""The states of a run; docs/explanation/runs.md draws them."""

STATE_NOTES: Final = ("waiting", "resumed", "end")
"""Names of the notes that change the state of a run."""

HEAD_BEGIN: Final = b'{"run"'
STATE_BEGINS: Final = (HEAD_BEGIN, *(f'{{"note":"{name}"'.encode() for name in STATE_NOTES))
"""How the lines begin that say how far a run has come."""

RECOVERY_JUMP: Final = 1_000_000
"""How far the numbers jump ahead in a run whose process died: more than a flush can have lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """What is known of a run when it begins."""

    run_id: str
    session_id: str
    number: int
    """Which run of its session it is, from 1; 0 while it is queued."""
    model: str
    """Full name of the provider's model; of a queued run as it was named."""
    started_at: str
    """UTC, microseconds, ``Z``."""
    named_model: str | None = None
    """The model as it was named: perhaps a preset or an agent."""
    think: Think = False
    wait: bool = True
    """Whether a person is asked about calls."""
    selected: Sequence[str] | None = None
    """Names of the tools of this run; those of the session if None."""
    options: JSONObject = field(default_factory=dict)
    """The options of its model, as ``ModelOptions`` has them."""
    client_tools: Sequence[JSONObject] = field(default_factory=list)
    """Schemas of the functions that the client runs itself."""
    response_format: JSONObject | None = None
    """The form of its answer, as requests have it."""
    continues: bool = False
    """Whether it goes on without a reader."""
    is_temporary: bool = False
    """Whether its session lasts as long as its process."""
    owner: str | None = None
    """To whom its session belongs."""

    @property
    def first_event(self) -> int:
        """Number of its first event."""
        return max(self.number - 1, 0) * RUN_STRIDE + 1

    @property
    def is_queued(self) -> bool:
        """Whether it waits until the runs before it have ended."""
        return self.number == 0

    def start(self) -> protocol.RunStart:
        """Return its first event."""
        return protocol.RunStart(
            run_id=self.run_id,
            session_id=self.session_id,
            model=self.model,
            started_at=self.started_at,
        )


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened beside the events.

    =============  ==========================================================================
    ``storing``    ``session_id``, ``messages`` (ids), ``until``: these messages are about to be
                   stored, and hold what the events up to this number say
    ``started``    ``session_id``, ``call``: the call with this id is about to run;
                   ``arguments`` if a person has changed them
    ``result``     ``session_id``, ``message``: a call's message for the model, not yet stored
    ``agent``      ``call``, ``session_id``, ``begin``: the call runs an agent on this session,
                   which had so many messages before the agent's first
    ``waiting``    every branch of the run waits for a person, and no process runs it
    ``resumed``    a process runs it again
    ``end``        ``state``, ``code``, ``message_id``: the run is over
    =============  ==========================================================================
    """

    name: str
    data: JSONObject


@dataclass(slots=True)
class EventLine:
    """Events of one line, as they are encoded."""

    first: int
    entries: list[Any]

    def events(self, since: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the events from a number on, each with its number; none of unknown kinds."""
        number = self.first
        for entry in self.entries:
            for event in _events_of(entry):
                if event is not None and number >= since:
                    yield number, event
                number += 1


Line = RunHead | EventLine | Note


def encode_head(head: RunHead) -> bytes:
    run = {name: getattr(head, name) for name in RunHead.__slots__}
    if head.owner is None:  # older servers do not know the key
        del run["owner"]
    return encode({"run": run})


def encode_note(note: Note) -> bytes:
    return encode({"note": note.name, **note.data})


def encode_events(first: int, events: Sequence[Event]) -> bytes:
    """Encode events with consecutive numbers."""
    line: list[Any] = [first]
    for kind, group in groupby(events, type):
        if kind is ContentDelta:
            line.append([event.content for event in group])  # type: ignore[union-attr] # kind says so
        elif kind is ThinkingDelta:
            line.append({"thinking": [event.content for event in group]})  # type: ignore[union-attr]
        elif issubclass(kind, AgentDelta):
            for owner, deltas in groupby(group, _owner):
                texts = [delta.content for delta in deltas]  # type: ignore[union-attr]
                line.append({"agent": owner, "texts": texts})
        else:
            line += [{"event": event.type, "data": _fields(event)} for event in group]
    return encode(line)


_LONG_NUMBER: Final = re.compile(rb"\d{19}")


def decode(line: bytes) -> Line | None:
    """Decode a line; return None for one that is no JSON, such as a torn write."""
    try:
        # Whole numbers beyond 64 bits would become floats.
        value = json.loads(line) if _LONG_NUMBER.search(line) else orjson.loads(line)
        if isinstance(value, list):
            return EventLine(value[0], value[1:])
        if "run" in value:
            head = value["run"]
            return RunHead(**{name: head[name] for name in RunHead.__slots__ if name in head})
        return Note(value.pop("note"), value)
    except (json.JSONDecodeError, KeyError, TypeError, IndexError):
        return None


def _owner(event: Any) -> tuple[str, str, str]:  # noqa: ANN401 - an AgentDelta
    return event.type, event.agent_name, event.agent_call_id


def _fields(event: Event) -> JSONObject:
    return {
        each.name: value
        for each in fields(event)
        if (value := getattr(event, each.name)) is not each.default
    }


_CLASSES: Final[dict[str, Any]] = {
    **{
        cls.type: cls
        for name in protocol.__all__
        if isinstance(getattr(cls := getattr(protocol, name), "type", None), str)
    },
    "tool_call": protocol.ToolCallStarted,
    "agent_tool_call": protocol.ToolCallStarted,
    "tool_result": protocol.ToolResultReady,
    "agent_tool_result": protocol.ToolResultReady,
}


def _events_of(entry: Any) -> Iterator[Event | None]:  # noqa: ANN401 - JSON of our own making
    """Yield the events of an entry; None for one that only a newer version knows."""
    if isinstance(entry, list):
        yield from map(ContentDelta, entry)
    elif "thinking" in entry:
        yield from map(ThinkingDelta, entry["thinking"])
    elif "agent" in entry:
        kind, name, call_id = entry["agent"]
        for text in entry["texts"]:
            yield _CLASSES[kind](text, name, call_id)
    else:
        yield _event_of(entry)


def _event_of(entry: JSONObject) -> Event | None:
    cls, data = _CLASSES.get(str(entry.get("event"))), entry.get("data")
    if cls is None or not isinstance(data, dict):
        return None
    try:
        event: Event = cls(
            **{each.name: data[each.name] for each in fields(cls) if each.name in data}
        )
    except TypeError:  # a field is missing
        return None
    return event
