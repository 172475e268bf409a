"""Runs and their journals: events of all kinds, a follower, and processes that write."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.former import FormerRuns
from mochi_server.chat.journal.journal import RunJournal
from mochi_server.chat.journal.records import EventLine, Line, Note, RunHead
from mochi_server.chat.runs.run import Run
from mochi_server.errors import ModelNotFound
from mochi_server.protocol import events as protocol
from mochi_server.protocol.completions import Finish
from mochi_server.protocol.events import ContentDelta, Event
from mochi_server.state import SQLiteState
from mochi_server.tools.base import SamplingAnswer, SamplingRequest
from tests.support.forked import ROOT, ForkedProcess, own_environment, start_python

_OWNERS = ({}, {"agent_name": "a", "agent_call_id": "c"})
_CALL = {"tool_name": "t", "call_index": 3, "tool_call_id": "call"}

EVENTS: list[Event] = [
    protocol.RunStart(run_id="r", session_id="s", model="m", started_at="t"),
    protocol.HistoryCompacted(summarised_messages=4, through_message_id=None),
    protocol.HistoryShortened(dropped_messages=2),
    protocol.ContentDelta(""),
    protocol.ContentDelta('text\n {"run" ü\r\u2028'),
    protocol.ContentDelta("ends with {"),
    protocol.ThinkingDelta("thought"),
    protocol.ThinkingDelta(" more"),
    protocol.AgentPlanning("plan", "a", "c"),
    protocol.AgentPlanning("other", "b", "d"),
    protocol.AgentExecution("x", "a", "c"),
    protocol.AgentStart(
        agent_name="a",
        instruction="do",
        session_id="s2",
        model="m",
        agent_call_id="c",
        parent_call_id=None,
    ),
    protocol.AgentComplete(
        agent_name="a",
        session_id="s2",
        output="o",
        success=False,
        error_message="e",
        agent_call_id="c",
    ),
    *(
        kind(**_CALL, **owner, **fields)
        for owner in _OWNERS
        for kind, fields in (
            (protocol.ToolCallStarted, {"arguments": {"a": [1, None, {"b": 1.5}]}}),
            (
                protocol.ToolResultReady,
                {
                    "success": True,
                    "result": "r",
                    "error_message": None,
                    "code": "CODE",
                    "attachments": [{"attachment_id": "0"}],
                },
            ),
            (
                protocol.ToolInputRequired,
                {
                    "elicitation": {"message": "m", "requested_schema": {"type": "object"}},
                    "confirmation_id": "i",
                    "timeout_seconds": 0,
                },
            ),
            (
                protocol.ToolInputReceived,
                {"confirmation_id": "i", "approved": True, "content": {"a": 1}, "reason": None},
            ),
            (
                protocol.ConfirmationRequired,
                {
                    "arguments": {},
                    "confirmation_id": "i",
                    "queue_position": 1,
                    "queue_total": 2,
                    "timeout_seconds": 1.5,
                },
            ),
            (
                protocol.ConfirmationDecided,
                {
                    "arguments": {"x": "y"},
                    "confirmation_id": "i",
                    "approved": True,
                    "edited": False,
                    "reason": None,
                },
            ),
        )
    ),
    protocol.ToolCallWaiting(tool_name="t", tool_call_id="call"),
    protocol.ToolSampling(
        tool_name="t", tool_call_id="call", model="m", prompt_eval_count=None, eval_count=1
    ),
    protocol.ToolProgress(tool_call_id="call", progress=0.5, total=None, message="half"),
    protocol.ToolContinuationStart(),
    protocol.ReplyRetry(problem="it is empty"),
    protocol.MessageComplete(
        message_id="m",
        model="m",
        eval_count=1,
        prompt_eval_count=None,
        context_window={"reason": None},
        finish_reason="stop",
        stop_sequence="###",
        tool_rounds_exhausted=True,
        ignored_options=["min_p"],
        client_calls=[{"id": "call_1", "name": "weather", "arguments": {"city": "Rome"}}],
        timestamp="2026-01-02T03:04:05.678901Z",
        message={"role": "assistant", "content": "text"},
    ),
    protocol.ErrorEvent(code="CODE", message="m", details={"d": []}),
    protocol.Done(session_id="s"),
]
"""Events of every class, with and without an agent."""


def head(run_id: str = "run_1", number: int = 1, session_id: str = "session") -> RunHead:
    return RunHead(
        run_id=run_id,
        session_id=session_id,
        number=number,
        model="model",
        started_at="2026-01-01T00:00:00.000000Z",
    )


def run_in_memory(session_id: str = "a1b2c3d4e5") -> Run:
    """Return a run that has begun."""
    run = Run(head(session_id=session_id), RunJournal(SQLiteState()))
    run.begin()
    return run


def deltas(*numbers: int) -> list[Event]:
    """Events that say their number."""
    return [ContentDelta(f"{number} ") for number in numbers]


def events_of(lines: Sequence[Line], since: int = 0) -> list[tuple[int, Event]]:
    return [pair for line in lines if isinstance(line, EventLine) for pair in line.events(since)]


def notes_of(lines: Sequence[Line]) -> list[str]:
    return [line.name for line in lines if isinstance(line, Note)]


async def lines_of(journal: RunJournal, run_id: str = "run_1") -> list[Line]:
    part = await journal.read(run_id)
    assert part is not None
    return part.lines


async def finish(journal: RunJournal, writer: RunWriter, state: str = "done") -> None:
    writer.note("end", state=state)
    await journal.close(writer)


class Follower:
    """Reads a run as it grows, and leaves out what it has by its number."""

    def __init__(self, journal: RunJournal, run_id: str = "run_1") -> None:
        self._journal, self._run_id = journal, run_id
        self._position: object = None
        self.last = 0
        self.events: list[tuple[int, Event]] = []
        self.notes: list[str] = []
        self.is_held = True

    async def poll(self) -> None:
        part = await self._journal.read(self._run_id, self._position)
        if part is None:
            return
        self._position, self.is_held = part.position, part.is_held
        self.notes += notes_of(part.lines)
        for number, event in events_of(part.lines, self.last + 1):
            self.events.append((number, event))
            self.last = number

    async def poll_until(self, note: str) -> None:
        while note not in self.notes:
            await self.poll()
            await asyncio.sleep(0.001)


def journal_in(folder: Path) -> RunJournal:
    """The runs of a folder, as a process of a server has them."""
    conversion = FormerRuns(folder / "runs")
    return RunJournal(SQLiteState(folder, "runs", is_durable=False, conversion=conversion))


def numbered(*numbers: int) -> list[tuple[int, Event]]:
    return list(zip(numbers, deltas(*numbers), strict=True))


async def write(journal: RunJournal, writer: RunWriter, *numbers: int) -> None:
    """Let a run say these numbers."""
    for number in numbers:
        writer.add(number, deltas(number))
    await journal.flush()


async def park(journal: RunJournal, run_id: str = "run_1") -> None:
    """Begin a run that says something and waits."""
    writer = journal.begin(head(run_id))
    writer.add(1, deltas(1))
    writer.note("waiting")
    await journal.close(writer)


@asynccontextmanager
async def process(
    role: str, folder: Path, *arguments: object
) -> AsyncIterator[Process | ForkedProcess]:
    """A process that does what ``journal_process`` says, killed at the end."""
    command = ("-m", "tests.support.journal_process", role, str(folder), *map(str, arguments))
    environment = own_environment(os.environ)
    child = await start_python(*command, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        child.stdin.close()
        await child.stdout.read()
        await child.wait()


async def answer(child: Process | ForkedProcess, order: str = "") -> str:
    """Give an order, and return the line that answers it."""
    child.stdin.write(f"{order}\n".encode())
    return (await asyncio.wait_for(child.stdout.readline(), 100)).decode().strip()


class NoModels:
    """Whoever asks gets an error, as where the model is gone."""

    async def sample(
        self, full_name: str, request: SamplingRequest
    ) -> tuple[SamplingAnswer, Finish]:
        raise ModelNotFound(model=full_name)
