"""The registry of runs: what ends one, and what others see of that."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass

import anyio
import pytest

from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.journal import RunJournal
from mochi_server.chat.journal.records import RECOVERY_JUMP
from mochi_server.chat.recovery import RunRecovery
from mochi_server.chat.runs import registry as registries
from mochi_server.chat.runs.log import LogReader, Numbered, RunLog
from mochi_server.chat.runs.registry import RunRegistry
from mochi_server.core import outages
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import (
    InternalError,
    RunInterrupted,
    ServerBusy,
    ShuttingDown,
    StorageError,
    StorageUnavailable,
)
from mochi_server.protocol.events import ContentDelta, Done, ErrorEvent, Event, ToolResultReady
from mochi_server.sessions import SessionManager
from mochi_server.sessions.storage.memory import MemoryStorage
from mochi_server.state import SQLiteState, State
from sessions_app.backends import connections
from sessions_app.backends.state import DatabaseState
from tests.support.databases import database_alias
from tests.support.lines import Line, line_to
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.runs import head
from tests.support.turns import Bench, bench, kinds, read_all, read_until
from tests.support.waiting import until


def new_registry(state: State | None = None) -> RunRegistry:
    journal, sessions = RunJournal(state or SQLiteState()), SessionManager(MemoryStorage())
    return RunRegistry(journal, RunRecovery(journal, sessions, sessions, StateConfirmationStore()))


class Script:
    """A turn that does what the test says."""

    def __init__(
        self, registry: RunRegistry, *events: Event, error: BaseException | None = None
    ) -> None:
        self.run = registry.new(head("run_scripted", session_id="scripted"))
        self._events, self._error = events, error
        self.released = 0

    async def events(self) -> AsyncGenerator[list[Event], None]:
        for event in self._events:
            yield [event]
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error

    async def release(self) -> None:
        self.released += 1


async def test_an_unforeseen_failure_ends_in_the_log_and_not_in_the_air(caplog):
    registry = new_registry()
    script = Script(registry, ContentDelta("x"), error=KeyError("secret"))
    events = await read_all(registry.start(script))
    assert kinds(events) == ["content_delta", "error", "done"]
    assert events[1].payload()["code"] == InternalError.code
    assert "secret" not in str(events[1].payload())
    assert "secret" in caplog.text
    assert script.released == 1


class Taken(Script):
    """A turn whose process stands still for longer than its lease, and cannot store anything."""

    def __init__(self, registry: RunRegistry, state: State) -> None:
        super().__init__(registry)
        self._state = state
        self.stands_still, self.goes_on = asyncio.Event(), asyncio.Event()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        yield [ContentDelta("x")]
        await self.run._journal.flush()
        await self._state.release()
        self.stands_still.set()
        await self.goes_on.wait()
        self.run._writer.lose()
        raise StorageUnavailable(session_id="scripted", reason="another process has it")


async def read_numbered(reader: LogReader) -> list[Numbered]:
    numbered: list[Numbered] = []
    with anyio.fail_after(30):
        while (batch := await reader.next()) is not None:
            numbered += batch
    reader.leave()
    return numbered


@dataclass
class TakenRun:
    """A run that another process has taken, which this one does not know yet."""

    turn: Taken
    log: RunLog
    other: RunJournal
    writer: RunWriter


@pytest.fixture
async def taken(tmp_path):
    state, other = SQLiteState(tmp_path), RunJournal(SQLiteState(tmp_path))
    registry = new_registry(state)
    turn = Taken(registry, state)
    log = registry.start(turn)
    await asyncio.wait_for(turn.stands_still.wait(), 30)
    writer = await other.take(turn.run.run_id)
    assert writer is not None
    yield TakenRun(turn, log, other, writer)
    await registry.wait_closed(30)
    await other.aclose()


FIRST_ELSEWHERE = 10**6
"""Number of the first event of the other process."""


async def test_readers_of_a_run_that_another_process_has_taken_read_on_there(taken):
    reader, whole = taken.log.reader(), taken.log.reader(whole_messages=True)
    taken.turn.goes_on.set()
    # What the other process stores is not told to readers of whole messages.
    events = [event for _, event in await read_numbered(whole)]
    assert kinds(events) == ["run_start", "content_delta", "error", "done"]
    assert events[-2].payload()["code"] == whole.failure.code == RunInterrupted.code
    assert not taken.log.closed
    taken.writer.add(FIRST_ELSEWHERE, [ContentDelta("y"), Done(session_id="scripted")])
    taken.writer.note("end", state="done")
    await taken.other.close(taken.writer)
    *before, delta, done = await read_numbered(reader)
    assert kinds([event for _, event in before]) == ["run_start", "content_delta"]
    assert [delta, done] == [
        (FIRST_ELSEWHERE, ContentDelta("y")),
        (FIRST_ELSEWHERE + 1, Done(session_id="scripted")),
    ]
    assert reader.failure is None


async def test_readers_of_a_run_that_was_forgotten_elsewhere_hear_that_it_was_interrupted(taken):
    """Their process stood still for longer than a run can be read after its end."""
    reader = taken.log.reader()
    taken.writer.add(taken.log.end, [ContentDelta("y"), Done(session_id="scripted")])
    taken.writer.note("end", state="done")
    await taken.other.close(taken.writer)
    await taken.other.prune(0)
    end = taken.log.end
    taken.turn.goes_on.set()
    numbered = await read_numbered(reader)
    assert kinds([event for _, event in numbered]) == [
        *("run_start", "content_delta", "error", "done")
    ]
    assert [number - end for number, _ in numbered[-2:]] == [RECOVERY_JUMP, RECOVERY_JUMP + 1]
    assert numbered[-2][1].payload()["code"] == reader.failure.code == RunInterrupted.code
    assert await taken.other.read(taken.turn.run.run_id) is None


async def test_a_turn_is_over_for_the_registry_before_its_readers_see_the_end():
    """Who sees done may start the next turn at once."""
    registry = new_registry()
    script = Script(registry, ContentDelta("x"))
    reader = registry.start(script).reader()
    while (batch := await reader.next()) is not None:
        if any(isinstance(event, Done) for _, event in batch):
            assert script.released == 1
            assert not len(registry)
            assert not registry.is_running("scripted")
    reader.leave()
    assert not registry.interrupt("scripted", ShuttingDown())


async def test_a_result_that_is_being_written_when_its_run_is_stopped_keeps_its_number(tmp_path):
    """Else the end has the same, and who reads the run elsewhere, or later, learns of no end."""
    may_end, is_written = asyncio.Event(), asyncio.Event()
    names = {"tool_name": "add", "tool_call_id": "call_1", "call_index": 0}
    result = ToolResultReady(**names, success=True, result="5", error_message=None)

    class Calling(Script):
        async def events(self) -> AsyncGenerator[list[Event], None]:
            await may_end.wait()
            is_written.set()
            yield [result]

    registry = new_registry(SQLiteState(tmp_path))
    script = Calling(registry)
    reader = registry.start(script).reader()
    await asyncio.wait_for(script.run.begun.wait(), 30)
    with closing(sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        may_end.set()
        await asyncio.wait_for(is_written.wait(), 30)
        stopping = asyncio.ensure_future(registry.stop(script.run.run_id))
        for _ in range(10):
            await asyncio.sleep(0)
        other.execute("ROLLBACK")
    assert (await asyncio.wait_for(stopping, 30)).state == "stopped"
    events = await read_all(reader)
    assert kinds(events) == ["tool_result", "done"]
    later = await registry.join(script.run.run_id)
    assert later is not None
    assert await read_all(later) == events
    await registry.wait_closed(30)


async def test_a_turn_that_was_ended_gets_the_time_to_save_whatever_the_limit_was():
    saved = asyncio.Event()

    class Saving(Script):
        async def release(self) -> None:
            await run_to_completion(saved.wait())

    registry = new_registry()
    registry.start(Saving(registry))
    registry.stop_all()
    closing = asyncio.ensure_future(registry.wait_closed(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    saved.set()
    await asyncio.wait_for(closing, 30)
    assert not len(registry)


async def test_a_turn_that_never_ends_holds_up_no_shutdown(monkeypatch):
    monkeypatch.setattr(registries, "SAVE_SECONDS", 0.01)
    never = asyncio.Event()

    class Stuck(Script):
        async def release(self) -> None:
            await run_to_completion(never.wait())

    registry = new_registry()
    registry.start(Stuck(registry))
    registry.stop_all()
    await asyncio.wait_for(registry.wait_closed(0), 30)
    assert len(registry) == 1
    never.set()
    await registry.wait_closed(5)


# Two machines with a PostgreSQL


short_leases = pytest.mark.parametrize("lease_seconds", [0.5])
"""Of tests that wait until leases expire; in the others none does, however slow the machine is."""
WORDS = [f"{number} " for number in range(20)]


@dataclass
class Machines:
    """Two machines with one folder of sessions; the owner reaches the database through a line."""

    database: PostgreSQL
    line: Line
    owner: Bench
    other: Bench

    @property
    def journal(self) -> RunJournal:
        """The other machine's."""
        return self.other.runtime.runs._journal

    async def states(self) -> list[str]:
        return [run.state for run in await self.other.runs.all_runs()]

    async def until_state(self, state: str) -> None:
        await until(self.states, lambda answer: answer == [state])

    async def until_free(self, run_id: str) -> None:
        """Wait until the run is in the database, and no machine has a lease of it."""
        await until(
            lambda: self.journal.read(run_id), lambda part: not (part is None or part.is_held)
        )


@pytest.fixture
def lease_seconds():
    return 600


@pytest.fixture
async def machines(tmp_path, ollama, monkeypatch, lease_seconds, django_db_blocker):
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.1)
    ollama.one_at_a_time = False
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(running_postgresql())
        line = await stack.enter_async_context(line_to(database))
        found = []
        for url in (line.url, database.url):
            alias = stack.enter_context(database_alias(url, django_db_blocker))
            state = DatabaseState(alias=alias, lease_seconds=lease_seconds)
            await state.version()
            found.append(await stack.enter_async_context(bench(tmp_path, ollama, state=state)))
        yield Machines(database, line, *found)
        if database.is_stopped:
            await database.start()
        line.mend()


async def begin(machines: Machines) -> tuple[str, str, asyncio.Event]:
    """Begin a run that has said half; return the ids of session and run, and what lets it go on."""
    gate = asyncio.Event()
    machines.owner.ollama.reply(WORDS, gate=gate, pause_after=10)
    session_id = await machines.owner.session()
    log = await machines.owner.start(session_id, continues=True)
    reader = log.reader()
    await read_until(reader, "content_delta")
    reader.leave()
    run_id = machines.owner.runs.running_of(session_id)
    await until(lambda: machines.journal.read(run_id), lambda answer: answer is not None)
    return session_id, run_id, gate


@needs_postgresql
@short_leases
async def test_a_machine_without_its_database_keeps_its_run_as_its_session(machines, caplog):
    """Its lease expires, and yet nobody ends what it executes, nor stores it twice afterwards."""
    session_id, run_id, gate = await begin(machines)
    machines.line.cut()
    await machines.until_free(run_id)
    for _ in range(3):
        assert await machines.states() == ["running"]
    assert caplog.text.count("cannot be recovered now") == 1
    gate.set()
    await machines.owner.ended()
    assert [m["content"] for m in machines.owner.stored(session_id)] == ["Hello", "".join(WORDS)]
    await machines.until_state("interrupted")
    machines.line.mend()
    await machines.owner.turn(session_id, "More")
    assert [m["content"] for m in machines.owner.stored(session_id)][:3] == [
        *("Hello", "".join(WORDS), "More")
    ]


@needs_postgresql
@short_leases
async def test_a_run_that_another_machine_has_taken_ends_and_its_readers_read_on_there(machines):
    """No event of the one has a number of the other's."""
    session_id, run_id, _ = await begin(machines)
    reader = await machines.owner.runs.join(run_id)
    machines.line.cut()
    await machines.until_free(run_id)
    writer = await machines.journal.take(run_id)
    machines.line.mend()
    await machines.owner.ended()
    await machines.owner.ollama.disconnected()
    assert [m["content"] for m in machines.owner.stored(session_id)] == ["Hello"]
    there = RunLog(FIRST_ELSEWHERE)
    there.extend([ErrorEvent.of(ServerBusy(limit=3), retry_after=2), Done(session_id=session_id)])
    writer.add(FIRST_ELSEWHERE, [event for _, event in there.since(0)])
    writer.note("end", state="failed")
    await machines.journal.close(writer)
    numbered = await read_numbered(reader)
    assert numbered[-2:] == there.since(0)
    assert [type(event) for _, event in numbered[1:-2]] == [ContentDelta] * (len(numbered) - 3)
    failure = reader.failure
    assert (failure.code, failure.status, failure.retry_after) == ("SERVER_BUSY", 503, 2)
    assert await machines.states() == ["failed"]


@needs_postgresql
async def test_turns_begin_and_end_without_the_database_and_can_be_read_when_it_is_back(machines):
    await machines.database.stop()
    session_id = await machines.owner.session()
    for _ in range(2):
        events = await machines.owner.turn(session_id)
        assert kinds(events)[-2:] == ["message_complete", "done"]
    run_id = (await machines.owner.sessions.get(session_id)).metadata.last_run_id
    with pytest.raises(StorageError):
        await machines.other.runs.join(run_id)
    await machines.database.start()
    await machines.until_free(run_id)
    reader = await machines.other.runs.join(run_id)
    assert kinds(await read_all(reader)) == kinds(events)
    assert await machines.states() == ["done", "done"]


@needs_postgresql
async def test_a_reader_at_another_machine_waits_while_the_database_is_away(machines):
    session_id, run_id, gate = await begin(machines)
    reader = await machines.other.runs.join(run_id)
    await read_until(reader, "content_delta")
    await machines.database.stop()
    gate.set()
    reading = asyncio.ensure_future(read_all(reader))
    await machines.database.start()
    assert kinds(await reading)[-2:] == ["message_complete", "done"]
    assert [m["content"] for m in machines.owner.stored(session_id)] == ["Hello", "".join(WORDS)]


@needs_postgresql
@short_leases
async def test_a_run_that_nobody_reads_is_cancelled_soon_after_the_database_has_gone(machines):
    machines.owner.ollama.reply(WORDS, gate=asyncio.Event(), pause_after=10)
    log = await machines.owner.start(await machines.owner.session())
    reader = log.reader()
    await read_until(reader, "content_delta")
    await machines.database.stop()
    reader.leave()
    await machines.owner.ollama.disconnected()
    await machines.owner.ended()


@needs_postgresql
async def test_turns_pause_only_once_while_the_database_does_not_answer(machines, monkeypatch):
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    owner = machines.owner
    sessions = [await owner.session() for _ in range(4)]
    await owner.turn(sessions[0])
    machines.database.hang()
    try:
        logs = [await owner.start(session) for session in sessions]
        await asyncio.gather(*map(read_all, logs))
        monkeypatch.setattr(connections, "ANSWER_SECONDS", 1000.0)  # a pause would have no end
        for session in sessions:
            assert kinds(await owner.turn(session))[-1] == "done"
    finally:
        machines.database.resume()
