"""What a run has come to, as far as its events were read: every reader asks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal

from ..errors import RunStopped
from .events import (
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    ErrorEvent,
    Event,
    MessageComplete,
    ReplyRetry,
    RunStart,
    ThinkingDelta,
    ToolCallStarted,
    ToolContinuationStart,
    ToolInputReceived,
    ToolInputRequired,
    ToolResultReady,
)

BETWEEN_REPLIES: Final = "\n\n"
"""What stands between the texts of two replies of the model, where tools ran between them."""

PartKind = Literal["text", "thinking"]

QUESTIONS = (ConfirmationRequired, ToolInputRequired)
DECISIONS = (ConfirmationDecided, ToolInputReceived)


@dataclass(slots=True)
class FoldedPart:
    """A text or a thought of the conversation's model, with nothing between its pieces."""

    kind: PartKind
    reply: int
    """Number of the model's reply, from 0."""
    separator: str = ""
    """What stands between this text and those of earlier replies."""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True, eq=False)
class FoldedAgent:
    """An agent that has begun."""

    start: AgentStart
    parent: FoldedAgent | None
    """The agent that has called it; None if the conversation's model did."""

    @property
    def depth(self) -> int:
        """Number of the agents above it."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def outermost(self) -> FoldedAgent:
        """The agent that the conversation's model has called."""
        return self if self.parent is None else self.parent.outermost


@dataclass(slots=True)
class FoldedCall:
    """A call of a tool of the server, by the conversation's model or by an agent."""

    begin: ToolCallStarted | ConfirmationRequired
    decision: ConfirmationDecided | None = None
    agent: FoldedAgent | None = None
    """The agent that it has started."""
    result: ToolResultReady | None = None


@dataclass(slots=True, eq=False)
class Fold:
    """What a run has come to; where its first events are missing, what the others say."""

    keeps_text: bool = field(default=False, kw_only=True)
    """Whether parts have their pieces."""
    run_id: str = ""
    reply: int = 0
    """Number of the model's reply, from 0."""
    retries: int = 0
    """Number of replies that were void."""
    part: FoldedPart | None = None
    """What the model is at."""
    parts: list[FoldedPart] = field(default_factory=list)
    """Texts and thoughts in their order, without those of void replies."""
    calls: list[FoldedCall] = field(default_factory=list)
    """All calls in their order."""
    agents: dict[str, FoldedAgent] = field(default_factory=dict)
    """By the id of the call that has started each."""
    confirmations: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By its id, about which call a person was asked, and whether it waits for a decision."""
    complete: MessageComplete | None = None
    error: ErrorEvent | None = None
    _has_text: bool = False
    """Whether the replies before have text."""
    _reply_has_text: bool = False
    _open_calls: dict[tuple[str | None, str], FoldedCall] = field(default_factory=dict)
    """Calls without a result, by the agent's call and their own: ids may come again."""

    def add(self, event: Event) -> None:
        kind: PartKind
        if isinstance(event, ContentDelta):  # the commonest first: this runs for each token
            kind = "text"
        elif isinstance(event, ThinkingDelta):
            kind = "thinking"
        else:
            self._add_other(event)
            return
        part = self.part
        if part is None or part.kind != kind:
            part = self._begin(kind)
        if self.keeps_text:
            part.pieces.append(event.content)

    def _begin(self, kind: PartKind) -> FoldedPart:
        self._end_part()
        self.part = part = FoldedPart(kind, self.reply)
        if kind == "text":
            if self._has_text and not self._reply_has_text:
                part.separator = BETWEEN_REPLIES
            self._reply_has_text = True
        self.parts.append(part)
        return part

    def _end_part(self) -> None:
        if self.part is not None:
            self.part.pieces = [self.part.text]  # no object for each token any more
            self.part = None

    def _add_other(self, event: Event) -> None:
        self._end_part()
        match event:
            case ToolCallStarted() | ConfirmationRequired():
                self.calls.append(FoldedCall(event))
                self._open_calls[event.agent_call_id, event.tool_call_id] = self.calls[-1]
            case ConfirmationDecided() if (call := self.open_call(event)) is not None:
                call.decision = event
            case ToolResultReady() if (call := self.open_call(event)) is not None:
                call.result = event
                del self._open_calls[event.agent_call_id, event.tool_call_id]
            case AgentStart():
                self._start_agent(event)
            case _:
                self._add_step(event)
        if isinstance(event, (*QUESTIONS, *DECISIONS)):
            waits = isinstance(event, QUESTIONS)
            self.confirmations[event.confirmation_id] = event.tool_call_id, waits

    def _start_agent(self, event: AgentStart) -> None:
        caller, call_id = event.parent_call_id, event.agent_call_id
        agent = FoldedAgent(event, self.agents.get(caller or ""))
        self.agents[call_id] = agent
        if (call := self._open_calls.get((caller, call_id))) is not None:
            call.agent = agent

    def open_call(self, event: ConfirmationDecided | ToolResultReady) -> FoldedCall | None:
        """Return the call of an event, if it has begun and has no result."""
        return self._open_calls.get((event.agent_call_id, event.tool_call_id))

    def _add_step(self, event: Event) -> None:
        """Add an event of the run itself."""
        match event:
            case RunStart():
                self.run_id = event.run_id
            case ToolContinuationStart():
                self.reply += 1
                self._has_text = self._has_text or self._reply_has_text
                self._reply_has_text = False
            case ReplyRetry():
                self.retries += 1
                self._reply_has_text = False
                self.parts = [part for part in self.parts if part.reply < self.reply]
            case MessageComplete():
                self.complete = event
            case ErrorEvent():
                self.error = event
            case _:
                pass

    def text_of(self, kind: PartKind) -> str:
        """Return all that the model has said, or thought."""
        return "".join(text for each, text in self.joined_parts() if each == kind)

    def joined_parts(self) -> list[tuple[PartKind, str]]:
        """Return texts and thoughts; neighbours of one kind, which tools have parted, as one."""
        grouped = groupby(self.parts, key=attrgetter("kind"))
        return [
            (kind, "".join(part.separator + part.text for part in parts)) for kind, parts in grouped
        ]

    def answer(self) -> MessageComplete:
        """Return the answer of a run that has ended without an error.

        Raises:
            RunStopped: a person has stopped it.
        """
        if self.complete is None:
            raise RunStopped(run_id=self.run_id)
        return self.complete
