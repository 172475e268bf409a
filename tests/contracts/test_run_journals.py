"""What every journal of runs promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from mochi_server.chat.journal.journal import RunJournal
from mochi_server.chat.journal.records import RECOVERY_JUMP, Note
from mochi_server.chat.runs.progress import RunProgress
from tests.contracts.conftest import NewState
from tests.support.runs import (
    EVENTS,
    Follower,
    deltas,
    events_of,
    finish,
    head,
    lines_of,
    notes_of,
)


class Journals(NamedTuple):
    """Where runs are written, and where another reads them."""

    own: RunJournal
    other: RunJournal


@pytest.fixture
async def journals(new_state: NewState) -> AsyncIterator[Journals]:
    own, state = RunJournal(first := new_state()), new_state()
    other = own if state is first else RunJournal(state)
    yield Journals(own, other)
    await own.aclose()
    await other.aclose()


async def test_every_event_and_note_is_read_back_in_order(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, EVENTS)
    writer.note("started", session_id="session", call="call")
    writer.add(1 + len(EVENTS), EVENTS)
    await journals.own.flush()

    lines = await lines_of(journals.other)

    assert lines[0] == head()
    assert events_of(lines) == list(enumerate(EVENTS * 2, 1))
    assert lines[2] == Note("started", {"session_id": "session", "call": "call"})


async def test_a_queued_run_is_listed_so_until_it_begins(journals: Journals):
    queued = replace(head(number=0), started_at="2025-01-01T00:00:00.000000Z")
    writer = journals.own.begin(queued)
    await journals.own.flush()
    (run,) = await journals.other.runs()
    assert (run.is_queued, run.is_held, run.started_at, run.end) == (
        *(True, True, queued.started_at),
        None,
    )
    assert RunProgress.read(await lines_of(journals.other)).state == "queued"

    assert journals.own.begin(head(number=3)) is writer
    writer.add(head(number=3).first_event, deltas(1))
    await journals.own.flush()

    (run,) = await journals.other.runs()
    assert (run.is_queued, run.started_at) == (False, head().started_at)
    progress = RunProgress.read(await lines_of(journals.other))
    assert (progress.state, progress.head, progress.deltas) == ("running", head(number=3), 1)
    await finish(journals.own, writer)
    (run,) = await journals.other.runs()
    assert (run.is_queued, run.end) == (False, "done")


async def test_a_queued_run_of_a_process_that_died_can_be_ended(journals: Journals):
    journals.own.begin(head(number=0))
    await journals.own.aclose()
    taken = await journals.other.take("run_1")
    await finish(journals.other, taken, "interrupted")
    (run,) = await journals.other.runs()
    assert run.end == "interrupted"


async def test_numbers_may_jump_ahead(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, deltas(1, 2))
    writer.add(3, deltas(3))
    writer.add(3 + RECOVERY_JUMP, deltas(9))
    await journals.own.flush()

    events = events_of(await lines_of(journals.other))
    assert [number for number, _ in events] == [1, 2, 3, 3 + RECOVERY_JUMP]


async def test_nothing_is_written_before_a_flush(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, deltas(1))

    assert await journals.other.read("run_1") is None
    assert await journals.other.runs() == []


async def test_a_flush_of_one_run_leaves_the_others(journals: Journals):
    one, two = journals.own.begin(head("run_1")), journals.own.begin(head("run_2"))
    await journals.own.flush()
    one.add(1, deltas(1))
    two.add(1, deltas(1))
    await journals.own.flush(one)

    assert len(events_of(await lines_of(journals.other, "run_1"))) == 1
    assert events_of(await lines_of(journals.other, "run_2")) == []


async def test_readers_of_different_speed_get_the_same(journals: Journals):
    writer = journals.own.begin(head())
    noise = journals.own.begin(head("run_12"))
    followers = [Follower(journals.other) for _ in range(4)]
    for number in range(1, 41):
        writer.add(number, deltas(number))
        noise.add(number, deltas(number))
        await journals.own.flush()
        for step, follower in enumerate(followers, 1):
            if number % (3 * step) == 0:
                await follower.poll()
    await finish(journals.own, writer)

    for follower in followers:
        await follower.poll_until("end")
        assert follower.events == list(enumerate(deltas(*range(1, 41)), 1))
        assert not follower.is_held


async def test_a_reader_with_everything_gets_nothing_again(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, deltas(1))
    await journals.own.flush()
    first = await journals.other.read("run_1")

    second = await journals.other.read("run_1", first.position)

    assert (second.lines, second.is_held) == ([], True)
    await finish(journals.own, writer)
    third = await journals.other.read("run_1", second.position)
    assert (notes_of(third.lines), third.is_held) == (["end"], False)
    assert (await journals.other.read("run_1", third.position)).lines == []


async def test_a_run_that_is_written_cannot_be_taken(journals: Journals):
    writer = journals.own.begin(head())
    await journals.own.flush()

    assert await journals.own.take("run_1") is None
    assert await journals.other.take("run_1") is None
    assert await journals.other.take("run_2") is None
    assert await journals.other.take("../run_1") is None
    await finish(journals.own, writer)
    assert await journals.other.take("run_1") is None


async def test_a_parked_run_is_taken_once_and_goes_on(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, deltas(1))
    writer.note("waiting")
    await journals.own.close(writer)
    follower = Follower(journals.other)
    await follower.poll()
    assert (follower.last, follower.is_held) == (1, False)

    takers = [journals.own, journals.other] * 3
    taken = await asyncio.gather(*(journal.take("run_1") for journal in takers))

    ((journal, writer),) = [pair for pair in zip(takers, taken, strict=True) if pair[1]]
    writer.note("resumed")
    writer.add(2, deltas(2))
    await journal.flush()
    await follower.poll()
    assert (follower.last, follower.is_held) == (2, True)
    await finish(journal, writer)
    await follower.poll()
    assert follower.events == list(enumerate(deltas(1, 2), 1))
    assert not follower.is_held
    assert notes_of(await lines_of(journals.other)) == ["waiting", "resumed", "end"]
    assert [run.end for run in await journals.other.runs()] == ["done"]


async def test_all_runs_are_listed_with_their_ends(journals: Journals):
    for number, state in enumerate(["done", "failed", None], 1):
        writer = journals.own.begin(head(f"run_{number}", number, "other"))
        await journals.own.flush()
        if state is not None:
            await finish(journals.own, writer, state)

    runs = {run.run_id: run for run in await journals.other.runs()}
    assert {run_id: run.end for run_id, run in runs.items()} == {
        "run_1": "done",
        "run_2": "failed",
        "run_3": None,
    }
    assert runs["run_1"].session_id == "other"
    assert runs["run_1"].started_at == head().started_at


async def test_runs_of_some_sessions_are_listed(journals: Journals):
    for number, session_id in enumerate(["one", "two", "two", "three"], 1):
        await finish(journals.own, journals.own.begin(head(f"run_{number}", number, session_id)))

    async def listed(*session_ids: str) -> set[str]:
        return {run.run_id for run in await journals.other.runs(session_ids)}

    assert await listed("two", "three") == {"run_2", "run_3", "run_4"}
    assert await listed() == set()


async def test_pruning_forgets_ended_runs_alone(journals: Journals):
    running, parked = journals.own.begin(head("run_1")), journals.own.begin(head("run_2"))
    parked.note("waiting")
    await journals.own.flush()
    await journals.own.close(parked)
    ended = journals.own.begin(head("run_3"))
    await finish(journals.own, ended)

    await journals.own.prune(60)
    assert await journals.own.read("run_3") is not None
    await asyncio.sleep(0.02)
    await journals.own.prune(0)
    await journals.other.prune(0)
    for journal in journals:
        assert {run.run_id for run in await journal.runs()} >= {"run_1", "run_2"}
    running.add(1, deltas(1))
    await journals.own.flush()
    assert events_of(await lines_of(journals.other)) == [(1, deltas(1)[0])]
    assert await journals.other.take("run_2") is not None


async def test_what_is_released_at_the_end_can_be_taken(journals: Journals):
    writer = journals.own.begin(head())
    writer.add(1, deltas(1))
    await journals.own.aclose()

    taken = await journals.other.take("run_1")
    assert taken is not None
    taken.add(2, deltas(2))
    await journals.other.aclose()

    assert len(events_of(await lines_of(journals.other))) == 2
    again = await journals.other.take("run_1")
    assert again is not None
    await finish(journals.other, again, "interrupted")
    assert [run.end for run in await journals.own.runs()] == ["interrupted"]


async def test_a_second_close_is_harmless(journals: Journals):
    writer = journals.own.begin(head())
    writer.note("waiting")
    await journals.own.close(writer)
    again = await journals.own.take("run_1")
    assert again is not None
    await journals.own.close(writer)
    again.add(1, deltas(1))
    await journals.own.flush()

    assert len(events_of(await lines_of(journals.other))) == 1


async def test_only_runs_whose_process_has_gone_are_dead(journals: Journals):
    for run_id, state in (("run_1", None), ("run_2", "waiting"), ("run_3", "end"), ("run_4", "")):
        writer = journals.own.begin(head(run_id))
        if state:
            writer.note(state, state="done")
        if state != "":
            await journals.own.close(writer)
    await journals.own.flush()
    await journals.own.aclose()
    assert sorted(await journals.other.dead_runs()) == ["run_1", "run_4"]
    taken = await journals.other.take("run_1")
    assert await journals.other.dead_runs() == ["run_4"]
    await finish(journals.other, taken, "interrupted")
    taken = await journals.other.take("run_2")
    taken.note("resumed")
    await journals.other.close(taken)
    assert sorted(await journals.other.dead_runs()) == ["run_2", "run_4"]


async def test_a_run_may_be_parked_again_and_again(journals: Journals):
    writer = journals.own.begin(head())
    for number in range(1, 6):
        writer.add(number, deltas(number))
        writer.note("waiting")
        await journals.own.close(writer)
        writer = await journals.other.take("run_1")
        assert writer is not None
        writer.note("resumed")
        journals = Journals(journals.other, journals.own)
    await finish(journals.own, writer)

    assert events_of(await lines_of(journals.other)) == list(enumerate(deltas(*range(1, 6)), 1))
