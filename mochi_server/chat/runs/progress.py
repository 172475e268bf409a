"""How far a run has come, read from its journal by a process that takes it up or ends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from typing_extensions import Self

from ...errors import JSONObject
from ...protocol.events import (
    AgentDelta,
    ConfirmationRequired,
    ContentDelta,
    Event,
    MessageComplete,
    ReplyRetry,
    ThinkingDelta,
    ToolCallStarted,
    event_of,
)
from ...protocol.fold import Fold
from ...protocol.messages import AssistantMessage, ToolMessage
from ...services.history import objects
from ...sessions import ChatSession
from ..journal.base import JournalPart
from ..journal.journal import RunJournal
from ..journal.records import EventLine, Line, Note, RunHead, RunState
from .log import DELTAS

LAST_MESSAGES = 100
"""Number of messages at a session's end that are searched for what a run has stored."""


@dataclass(slots=True)
class Unstored:
    """What happened in a session since messages were stored."""

    text: list[str] = field(default_factory=list)
    """Pieces of the model's reply."""
    thinking: list[str] = field(default_factory=list)
    announced: set[str] = field(default_factory=set)
    """Ids of calls that readers know of."""
    started: dict[str, JSONObject | None] = field(default_factory=dict)
    """Calls that have begun to run, by id: with their arguments if a person has changed them."""
    results: dict[str, ToolMessage] = field(default_factory=dict)
    """Messages of calls that have ended, by id of the call."""

    def __add__(self, other: Unstored) -> Unstored:
        return Unstored(
            self.text + other.text,
            self.thinking + other.thinking,
            self.announced | other.announced,
            {**self.started, **other.started},
            {**self.results, **other.results},
        )

    def partial_reply(self, model: str) -> AssistantMessage | None:
        """Return what the model had said of a reply that was cut off."""
        if not (self.text or self.thinking):
            return None
        message = AssistantMessage(content="".join(self.text), model=model, interrupted=True)
        if self.thinking:
            message.thinking = "".join(self.thinking)
        return message


@dataclass(slots=True)
class ConversationProgress:
    """What a run has done in one session: that of the person, or of an agent."""

    now: Unstored = field(default_factory=Unstored)
    """Since messages were about to be stored the last time."""
    storing: list[tuple[str, Unstored]] = field(default_factory=list)
    """Before that: each time the id of the last message, which the session may not have, and what
    the messages hold."""
    follows: str | None = None
    """Id of the last message that is not the run's; None: it is the user's."""
    stored: set[str] = field(default_factory=set)
    """Ids of all messages of the run that were about to be stored."""
    complete: MessageComplete | None = None
    """What readers are told once the last of them is stored, if it ends the run."""

    def unstored(self, session: ChatSession) -> Unstored:
        """Return what the session does not hold."""
        last = islice(objects(session.tail()), LAST_MESSAGES)
        ids = {message.get("message_id") for message in last}
        rest = self.now
        for message_id, held in reversed(self.storing):
            if message_id in ids:
                break
            rest = held + rest
        return replace(rest, text=[], thinking=[]) if self._is_behind(session) else rest

    def _is_behind(self, session: ChatSession) -> bool:
        """Return whether the session has messages of the run that the journal does not know.

        The journal could not be written when they were stored; they hold what it has, and more.
        """
        for message in islice(objects(session.tail()), LAST_MESSAGES):
            if message.get("role") == "user" or message.get("message_id") == self.follows:
                break
            if message.get("message_id") not in self.stored:
                return True
        return False


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """An agent that a run has started."""

    session_id: str
    begin: int
    """Number of messages in its session before its first."""


@dataclass(slots=True)
class RunProgress:
    """A run as its journal has it."""

    head: RunHead
    next_event: int
    """The number that the next event will have."""
    conversations: dict[str, ConversationProgress] = field(default_factory=dict)
    """By session."""
    agents: dict[str, AgentProgress] = field(default_factory=dict)
    """By id of the call that started it."""
    answered: set[str] = field(default_factory=set)
    """Ids of the calls whose results are known."""
    end: JSONObject | None = None
    """How it ended: ``{"state", "code", "message_id"}``."""
    is_parked: bool = False
    """Whether its process has let it go until a person decides."""
    fold: Fold = field(default_factory=Fold)
    """What readers know."""
    deltas: int = 0
    """Number of the pieces of text and thinking, about one for each token."""

    @property
    def state(self) -> RunState:
        """Its state; ``running`` also if its process has died."""
        if self.end is not None:
            return self.end["state"]  # type: ignore[return-value] # of our own making
        if self.head.is_queued:
            return "queued"
        return "waiting" if self.is_parked else "running"

    @property
    def agent_sessions(self) -> set[str]:
        """Sessions of the agents that have not ended: the run may store something there."""
        return {
            agent.session_id
            for call_id, agent in self.agents.items()
            if call_id not in self.answered
        }

    @classmethod
    def read(cls, lines: Iterable[Line]) -> Self | None:
        """Read the lines of a run; None without a head."""
        progress: Self | None = None
        for line in lines:
            if isinstance(line, RunHead):
                if progress is None or progress.head.is_queued:
                    progress = cls(line, line.first_event)
            elif progress is not None:
                progress.add(line)
        return progress

    def add(self, line: EventLine | Note) -> None:
        """Add a line; one that was added before changes nothing."""
        if isinstance(line, Note):
            self._add_note(line.name, line.data)
            return
        for number, event in line.events(self.next_event):
            self._add_event(event)
            self.next_event = number + 1

    def of(self, session_id: str) -> ConversationProgress:
        """Return what was done in a session."""
        follows = self.head.follows if session_id == self.head.session_id else None
        return self.conversations.setdefault(session_id, ConversationProgress(follows=follows))

    def _add_event(self, event: Event) -> None:
        main = self.of(self.head.session_id)
        self.fold.add(event)
        self.deltas += isinstance(event, DELTAS)
        match event:
            case ContentDelta():
                main.now.text.append(event.content)
            case ThinkingDelta():
                main.now.thinking.append(event.content)
            case ReplyRetry():
                main.now.text.clear()
                main.now.thinking.clear()
            case AgentDelta():
                self._of_agent(event.agent_call_id).now.text.append(event.content)
            case ToolCallStarted() | ConfirmationRequired():
                self._of_agent(event.agent_call_id).now.announced.add(event.tool_call_id)
            case _:
                pass

    def _of_agent(self, call_id: str | None) -> ConversationProgress:
        """Return what an agent has done; without a call, the conversation itself."""
        if call_id is None:
            return self.of(self.head.session_id)
        return self.of(self.agents[call_id].session_id)

    def _add_note(self, name: str, data: Any) -> None:  # noqa: ANN401 - JSON of our own making
        match name:
            case "storing":
                one = self.of(data["session_id"])
                one.storing.append((data["messages"][-1], one.now))
                one.now = Unstored()
                one.stored.update(data["messages"])
                complete = event_of(MessageComplete.type, data.get("complete", {}))
                one.complete = complete if isinstance(complete, MessageComplete) else None
            case "started":
                self.of(data["session_id"]).now.started[data["call"]] = data.get("arguments")
            case "result":
                message = ToolMessage.model_validate(data["message"])
                call_id = message.tool_call_id or ""
                self.of(data["session_id"]).now.results[call_id] = message
                self.answered.add(call_id)
            case "agent":
                self.agents[data["call"]] = AgentProgress(data["session_id"], data["begin"])
                self.answered.discard(data["call"])  # some models count the calls of each reply
            case "waiting" | "resumed":
                self.is_parked = name == "waiting"
            case "end":
                self.end = data
            case _:
                pass


class ReadRun(NamedTuple):
    """All lines of a run, and how far it has come."""

    part: JournalPart
    progress: RunProgress


async def read_run(journal: RunJournal, run_id: str) -> ReadRun | None:
    """Read a run; None if there is none of this id.

    Raises:
        StorageError: the journal cannot be read.
    """
    part = await journal.read(run_id)
    progress = None if part is None else RunProgress.read(part.lines)
    return None if part is None or progress is None else ReadRun(part, progress)
