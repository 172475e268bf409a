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
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

import orjson

from ...errors import JSONObject
from ...protocol.events import (
    CLASSES,
    AgentDelta,
    ContentDelta,
    Event,
    RunStart,
    ThinkingDelta,
    event_of,
)
from ...protocol.options import ModelOptions
from ...protocol.payload import fields_of
from ...protocol.response_format import RESPONSE_FORMAT
from ...protocol.turn_request import NO_REQUEST, TurnRequest
from ...sessions import ChatSession
from ...sessions.codec import encode

RUN_STRIDE: Final = 10**9
"""Most events of a run; the first of run ``n`` of a session is ``(n - 1) * RUN_STRIDE + 1``."""

RunState = Literal["queued", "running", "waiting", "done", "failed", "stopped", "interrupted"]
"""The states of a run; docs/explanation/runs.md draws them."""

GOING_ON: Final = frozenset({"queued", "running", "waiting"})
"""The states of a run that has not ended."""

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
    request: TurnRequest = NO_REQUEST
    """What its client has asked, without the messages. Where a run has begun, the model and the
    options are as session and preset say what the client does not."""
    follows: str | None = None
    """Id of the session's last message when it began: what comes behind it is the run's."""
    replaces: str | None = None
    """Id of the session's last message, if the run answers the last question again; empty if the
    message has none. None: it replaces nothing."""
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

    @property
    def state(self) -> RunState:
        """The state that the run has from here on."""
        return "queued" if self.is_queued else "running"

    def has_yet_to_replace(self, session: ChatSession) -> bool:
        """Return whether a session still ends with the answer that the run replaces."""
        if self.replaces is None or session.session_id != self.session_id:
            return False
        return self.replaces == (session.last_message_id or "")

    def start(self) -> RunStart:
        return RunStart(
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
                   stored, and hold what the events up to this number say; ``complete``: the payload
                   of ``message_complete``, if they end the run
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

    @property
    def state(self) -> RunState | None:
        """The state that a run has from here on; None where it stays as it was."""
        if self.name not in STATE_NOTES:
            return None
        if self.name == "end":
            return str(self.data.get("state"))  # type: ignore[return-value] # of our own making
        return "waiting" if self.name == "waiting" else "running"


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
    request = head.request
    response_format = request.response_format
    run: JSONObject = {
        **{name: getattr(head, name) for name in _OWN_FIELDS},
        **{name: getattr(request, name) for name in _REQUEST_FIELDS},
        "named_model": request.model,
        "client_tools": [*request.client_tools],
        "options": request.options.as_stored(),
        "response_format": None if response_format is None else response_format.as_stored(),
    }
    if head.owner is not None:
        run["owner"] = head.owner
    return encode({"run": run})


_OWN_FIELDS: Final = tuple(n for n in RunHead.__slots__ if n not in {"request", "owner"})
_REQUEST_FIELDS: Final = ("think", "wait", "selected", "allowed", "continues", "keep")


def _head_of(stored: dict[str, Any]) -> RunHead:
    asked: dict[str, Any] = {name: stored[name] for name in _REQUEST_FIELDS if name in stored}
    asked["model"] = stored.get("named_model")
    asked["client_tools"] = tuple(stored.get("client_tools", ()))
    if options := stored.get("options"):
        asked["options"] = ModelOptions.read(options)
    if response_format := stored.get("response_format"):
        asked["response_format"] = RESPONSE_FORMAT.validate_python(response_format)
    own = {name: stored[name] for name in (*_OWN_FIELDS, "owner") if name in stored}
    return RunHead(request=TurnRequest(**asked), **own)


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
            line += [{"event": event.type, "data": fields_of(event)} for event in group]
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
            return _head_of(value["run"])
        return Note(value.pop("note"), value)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _owner(event: Any) -> tuple[str, str, str]:  # noqa: ANN401 - an AgentDelta
    return event.type, event.agent_name, event.agent_call_id


def _events_of(entry: Any) -> Iterator[Event | None]:  # noqa: ANN401 - JSON of our own making
    """Yield the events of an entry; None for one that only a newer version knows."""
    if isinstance(entry, list):
        yield from map(ContentDelta, entry)
    elif "thinking" in entry:
        yield from map(ThinkingDelta, entry["thinking"])
    elif "agent" in entry:
        kind, name, call_id = entry["agent"]
        for text in entry["texts"]:
            yield CLASSES[kind](text, name, call_id)
    else:
        data = entry.get("data")
        yield event_of(str(entry.get("event")), data) if isinstance(data, dict) else None
