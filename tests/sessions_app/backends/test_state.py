"""Confirmations and runs in PostgreSQL: leases, lost answers, a server that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from django.db import OperationalError
from pytest_django import DjangoDbBlocker

from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.journal import RunJournal
from mochi_server.core import outages
from mochi_server.errors import ConfirmationNotFound, ConfirmationUnavailable, StorageError
from sessions_app.backends import connections
from sessions_app.backends.state import DatabaseState
from tests.support.confirmations import NO, YES, make_confirmation
from tests.support.databases import database_alias
from tests.support.lines import Line, line_to
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.runs import (
    Follower,
    deltas,
    events_of,
    finish,
    head,
    lines_of,
    notes_of,
    numbered,
    write,
)
from tests.support.waiting import until

pytestmark = needs_postgresql


@pytest.fixture
async def server() -> AsyncIterator[PostgreSQL]:
    async with running_postgresql() as server:
        yield server


@pytest.fixture
def alias(server: PostgreSQL, django_db_blocker: DjangoDbBlocker) -> AsyncIterator[str]:
    with database_alias(server.url, django_db_blocker) as alias:
        yield alias


class Losing(DatabaseState):
    """A state that loses the answer to its first write."""

    def __init__(self, alias: str, acted: Callable[[], Any]) -> None:
        super().__init__(alias=alias)
        self._acted = acted
        self.is_lost = False

    def _transaction(self, work: Any, *, is_snapshot: bool = False) -> Any:
        answer = super()._transaction(work, is_snapshot=is_snapshot)
        if not (is_snapshot or self.is_lost):
            self.is_lost = True
            self._acted()
            raise OperationalError("the connection is lost")
        return answer


@pytest.mark.parametrize("acted", ["nobody", "who waits", "another"])
async def test_a_decision_counts_once_though_its_answer_is_lost(alias: str, acted: str) -> None:
    loop = asyncio.get_running_loop()
    asked = make_confirmation()

    def consume() -> None:
        if acted == "who waits":
            work = asking.consume(asked.confirmation_id)
            asyncio.run_coroutine_threadsafe(work, loop).result(30)

    asking = StateConfirmationStore(DatabaseState(alias=alias))
    deciding = StateConfirmationStore(Losing(alias, consume))
    await asking.put(asked)
    if acted == "another":
        await asking.decide(asked.confirmation_id, NO)
        with pytest.raises(ConfirmationNotFound):
            await deciding._settle(asked, YES) or await deciding.decide(asked.confirmation_id, YES)
    else:
        assert await deciding.decide(asked.confirmation_id, YES) == asked
    for store in (asking, deciding):
        await store.aclose()


async def test_who_waits_goes_on_after_a_restart_and_hears_nothing_twice(
    server: PostgreSQL, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.5)
    asking, deciding = (StateConfirmationStore(DatabaseState(alias=alias)) for _ in range(2))
    await asking.put(asked := make_confirmation())
    async with asking.watch() as changes:
        await server.stop()
        for step in (deciding.decide(asked.confirmation_id, YES), deciding.pending()):
            with pytest.raises(ConfirmationUnavailable):
                await step
        await server.start()
        monkeypatch.setattr(outages, "OUTAGE_SECONDS", 60.0)
        await deciding.decide(asked.confirmation_id, YES)
        with anyio.fail_after(60):
            change = await anext(changes)
    assert (change.kind, change.confirmation) == ("decided", asked)
    assert [each.confirmation for each in await deciding.stored()] == [asked]
    for store in (asking, deciding):
        await store.aclose()


# Leases of runs


MakeJournal = Callable[..., RunJournal]


@pytest.fixture
async def line(server: PostgreSQL) -> AsyncIterator[Line]:
    """A way to the server that a test can cut."""
    async with line_to(server) as line:
        yield line


@pytest.fixture
async def make_journal(
    server: PostgreSQL, django_db_blocker: DjangoDbBlocker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeJournal]:
    """Journals as so many machines have them, also through a line."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.1)
    async with AsyncExitStack() as stack:

        def make(line: Line | None = None, lease_seconds: float = 600) -> RunJournal:
            url = server.url if line is None else line.url
            alias = stack.enter_context(database_alias(url, django_db_blocker))
            state = DatabaseState(alias=alias, lease_seconds=lease_seconds)
            stack.push_async_callback(state.aclose)
            journal = RunJournal(state)
            stack.push_async_callback(journal.aclose)
            return journal

        yield make


async def until_held(journal: RunJournal, *, is_held: bool) -> None:
    """Wait until there is a lease of the run, or until it has expired."""
    await until(lambda: journal.read("run_1"), lambda part: part.is_held is is_held)


async def test_of_eight_machines_one_takes_a_run_of_a_dead_one(make_journal: MakeJournal) -> None:
    died = make_journal(lease_seconds=0.5)
    await write(died, died.begin(head()), 1)
    died._renewer.cancel()
    journals = [make_journal() for _ in range(8)]
    await until_held(journals[0], is_held=False)
    taken = await asyncio.gather(*(journal.take("run_1") for journal in journals))
    assert len([writer for writer in taken if writer is not None]) == 1
    await until_held(journals[0], is_held=True)


async def test_a_lease_is_renewed_though_nothing_is_written(make_journal: MakeJournal) -> None:
    own, other = make_journal(lease_seconds=3), make_journal()
    writer = own.begin(head())
    await own.flush()
    first = own._renewed
    await until(lambda: own._renewed > first + 4)  # longer than one lease
    await until_held(other, is_held=True)
    await finish(own, writer)
    assert not (await other.read("run_1")).is_held


async def cut_off(
    make_journal: MakeJournal, line: Line
) -> tuple[RunJournal, RunJournal, RunWriter]:
    """A run whose machine has no line any more, and whose lease is over; another machine."""
    own, other = make_journal(line, lease_seconds=0.3), make_journal()
    writer = own.begin(head())
    await write(own, writer, 1)
    line.cut()
    await write(own, writer, 2)
    await until_held(other, is_held=False)
    return own, other, writer


async def test_who_was_cut_off_cannot_write_what_another_has_taken(
    make_journal: MakeJournal, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    own, other, writer = await cut_off(make_journal, line)
    taken = await other.take("run_1")
    await write(other, taken, 100)
    line.mend()
    await write(own, writer, 3)
    assert writer.is_lost
    assert "is lost to this process" in caplog.text
    await write(own, writer, 4)
    await finish(own, writer)
    assert events_of(await lines_of(other)) == numbered(1, 100)
    await write(other, taken, 101)
    await finish(other, taken, "interrupted")
    assert events_of(await lines_of(own)) == numbered(1, 100, 101)
    assert [run.end for run in await own.runs()] == ["interrupted"]


async def test_who_may_be_too_late_finds_out_what_others_have_taken(
    make_journal: MakeJournal, line: Line
) -> None:
    """Before it acts on it: it may have been stopped for a while."""
    own, other, writer = await cut_off(make_journal, line)
    assert isinstance(await other.take("run_1"), RunWriter)
    line.mend()
    assert not writer.is_lost
    await until(own.find_out_losses, lambda _: writer.is_lost)


async def test_who_was_cut_off_goes_on_with_what_nobody_has_taken(
    make_journal: MakeJournal, line: Line
) -> None:
    own, other, writer = await cut_off(make_journal, line)
    line.mend()
    await write(own, writer, 3)
    assert not writer.is_lost
    await until_held(other, is_held=True)
    assert events_of(await lines_of(other)) == numbered(1, 2, 3)
    await finish(own, writer)


async def test_a_run_that_is_gone_is_not_made_anew_by_who_was_cut_off(
    make_journal: MakeJournal, line: Line
) -> None:
    own, other = make_journal(line, lease_seconds=0.3), make_journal()
    writer = own.begin(head())
    await write(own, writer, 1)
    line.cut()
    await until_held(other, is_held=False)
    await finish(other, await other.take("run_1"), "interrupted")
    await other.prune(0)
    line.mend()
    await write(own, writer, 2)
    assert writer.is_lost
    assert await other.read("run_1") is None


# Runs: lost answers, a server that goes away


async def test_what_is_sent_again_is_written_once(make_journal: MakeJournal, line: Line) -> None:
    own, other = make_journal(line), make_journal()
    writers = [own.begin(head(f"run_{number}")) for number in range(3)]
    for number in range(1, 10):
        line.break_at = number % 6  # after each of the answers in turn
        for writer in writers:
            writer.add(number, deltas(number))
            writer.note("started", call=number)
        await until(lambda: flushed(own))
        line.break_at = 0
    for writer in writers:
        lines = await lines_of(other, writer.run_id)
        assert events_of(lines) == numbered(*range(1, 10))
        assert notes_of(lines) == ["started"] * 9


async def flushed(journal: RunJournal) -> bool:
    await journal.flush()
    return not journal.is_waiting


async def test_a_run_goes_on_when_its_database_is_back(
    make_journal: MakeJournal, server: PostgreSQL
) -> None:
    own, other = make_journal(), make_journal()
    follower = Follower(other)
    writer = own.begin(head())
    await write(own, writer, 1, 2)
    await follower.poll()
    await server.stop()
    await write(own, writer, 3)
    for step in (other.read("run_1"), other.take("run_1"), other.runs()):
        with pytest.raises(StorageError):
            await step
    await server.start()
    await write(own, writer, 4)
    await until(lambda: flushed(own))
    await finish(own, writer)
    await follower.poll()
    assert follower.events == numbered(1, 2, 3, 4)
    assert [run.end for run in await other.runs()] == ["done"]


async def test_a_journal_that_is_closed_waits_once_for_a_hanging_database(
    make_journal: MakeJournal, server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    journal = make_journal()
    writers = [journal.begin(head(f"run_{number}")) for number in range(4)]
    await journal.flush()
    for writer in writers:
        writer.add(1, deltas(1))
    server.hang()
    with anyio.fail_after(30):
        await journal.aclose()
    server.resume()
