"""The runs of a data folder: what other processes see of them, whatever happens to their own."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from mochi_server.chat.journal import portion
from mochi_server.chat.journal.journal import RunJournal
from mochi_server.chat.journal.records import Note, encode_events, encode_head, encode_note
from tests.support.chance import moments
from tests.support.disk import full_disk
from tests.support.runs import (
    Follower,
    answer,
    deltas,
    events_of,
    finish,
    head,
    journal_in,
    lines_of,
    notes_of,
    numbered,
    park,
    process,
    write,
)

KILLS = 30


@pytest.fixture
async def journal(tmp_path):
    journal = journal_in(tmp_path)
    yield journal
    await journal.aclose()


# A process that dies


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_killed_process_leaves_every_line_that_was_flushed(tmp_path):
    for number, moment in enumerate(moments(random.Random(14), KILLS, 0.2)):
        await _write_and_kill(tmp_path / str(number), moment)


async def _write_and_kill(folder: Path, moment: float) -> None:
    runs = [f"run_{number}" for number in range(3)]
    journal = journal_in(folder)
    follower = Follower(journal)
    async with process("write", folder, len(runs)) as child:
        assert await answer(child) == "3"
        end = time.monotonic() + moment
        while time.monotonic() < end:
            await follower.poll()
            await asyncio.sleep(0.001)
        child.kill()
        said = (await child.stdout.read()).split(b"\n")[:-1]
    flushed = int(said[-1]) if said else 3

    await follower.poll()
    assert not follower.is_held
    assert sorted(await journal.dead_runs()) == runs
    for run_id in runs:
        events = events_of(await lines_of(journal, run_id))
        assert len(events) >= flushed
        assert events == numbered(*range(1, len(events) + 1))
        writer = await journal.take(run_id)
        writer.add(len(events) + 1, deltas(len(events) + 1))
        await finish(journal, writer, "interrupted")
    await follower.poll()
    assert follower.events == numbered(*range(1, follower.last + 1))
    assert follower.notes == ["end"]
    ends = {run.run_id: run.end for run in await journal_in(folder).runs()}
    assert ends == dict.fromkeys(runs, "interrupted")
    await journal.aclose()


async def test_of_eight_processes_one_takes_a_parked_run(tmp_path, journal):
    await park(journal)
    await _take_by_eight(tmp_path, "run_1")
    # That process is dead by now: what it left is taken as well.
    await _take_by_eight(tmp_path, "run_1")


async def _take_by_eight(folder: Path, run_id: str) -> None:
    reader = journal_in(folder)
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(process("take", folder, run_id)) for _ in range(8)
        ]
        assert await asyncio.gather(*map(answer_only, children)) == ["ready"] * 8
        answers = asyncio.gather(*map(answer, children))
        while not answers.done():  # who looks is in nobody's way
            await reader.read(run_id)
            await asyncio.sleep(0)
        assert sorted(await answers) == ["none"] * 7 + ["taken"]
        part = await reader.read(run_id)
        assert part.is_held
    assert not (await reader.read(run_id)).is_held


async def answer_only(child: asyncio.subprocess.Process) -> str:
    return (await asyncio.wait_for(child.stdout.readline(), 100)).decode().strip()


async def test_a_cancelled_take_lets_the_run_go(journal):
    await park(journal)
    for _ in range(20):
        task = asyncio.ensure_future(journal.take("run_1"))
        await asyncio.sleep(random.random() / 1000)
        if not task.done():
            task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(outcome, asyncio.CancelledError):
            await journal.close(outcome)
    assert await journal.take("run_1") is not None


async def test_a_cancelled_flush_writes_each_line_once(tmp_path, journal):
    """Whether it is made in the event loop, or waits in a thread for another process."""
    writer = journal.begin(head())
    await journal.flush()
    for number in range(1, 41):
        writer.add(number, deltas(number))
        with closing(sqlite3.connect(tmp_path / "runs.sqlite3")) as other:
            other.execute("BEGIN IMMEDIATE")
            flush = asyncio.ensure_future(journal.flush())
            await asyncio.sleep(random.random() / 1000)
            flush.cancel()
            other.execute("ROLLBACK")
        await asyncio.gather(flush, return_exceptions=True)
    await journal.flush()
    assert events_of(await lines_of(journal_in(tmp_path))) == numbered(*range(1, 41))


async def test_the_end_of_a_run_is_written_later_where_its_write_was_cancelled_and_failed(
    tmp_path, journal
):
    writer = journal.begin(head())
    await journal.flush()
    writer.note("end", state="done")
    with closing(sqlite3.connect(tmp_path / "runs.sqlite3")) as other:
        other.execute("BEGIN IMMEDIATE")
        close = asyncio.ensure_future(journal.close(writer))
        await asyncio.sleep(0)
        close.cancel()
        with full_disk():
            other.execute("ROLLBACK")
            await asyncio.wait({close})
    assert close.cancelled()
    await journal.flush()
    (run,) = await journal_in(tmp_path).runs()
    assert (run.state, run.is_held) == ("done", False)


async def test_one_write_serves_all_runs_that_wait_for_it(tmp_path, journal):
    """As where hundreds begin while another process writes; one may be cancelled."""
    writers = [journal.begin(head(f"run_{number}")) for number in range(50)]
    await journal.flush()
    with closing(sqlite3.connect(tmp_path / "runs.sqlite3")) as other:
        other.execute("BEGIN IMMEDIATE")
        flushes = []
        for writer in writers:
            writer.add(1, deltas(1))
            flush = journal.flush(writer, unless_failing=True)
            flushes.append(asyncio.ensure_future(flush))
            await asyncio.sleep(0)
        flushes[7].cancel()
        assert not any(flush.done() for flush in flushes[:7])
        other.execute("ROLLBACK")
        await asyncio.gather(*flushes, return_exceptions=True)
        (parts,) = other.execute("SELECT count(*) FROM state_parts").fetchone()
    assert parts == 3, "the heads, the first event, and all others"
    for number in range(50):
        lines = await lines_of(journal_in(tmp_path), f"run_{number}")
        assert events_of(lines) == numbered(1)


# Full disks, lost folders, lines of others


@pytest.mark.parametrize("size", [10, 40_000, 80_000, 200_000])
async def test_a_full_disk_loses_nothing_once_it_has_room(tmp_path, size):
    other = journal_in(tmp_path)
    followers = [Follower(other, f"run_{number}") for number in range(5)]
    async with process("fill", tmp_path, size) as child:
        said = asyncio.ensure_future(answer_only(child))
        while not said.done():
            for follower in followers:
                await follower.poll()
            await asyncio.sleep(0)
        assert await said == "full"
        assert followers[0].last < 100
        assert await answer(child) == "free"
        for number, follower in enumerate(followers):
            await follower.poll()
            assert follower.events == numbered(*range(1, 101 if number == 4 else 102))
            assert follower.notes == ["end"]


async def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path, caplog):
    folder = tmp_path / "state"
    folder.write_bytes(b"in the way")
    journal = journal_in(folder)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    await write(journal, writer, 2)
    assert len(caplog.records) == 1

    folder.unlink()
    await write(journal, writer, 3)

    assert events_of(await lines_of(journal_in(folder))) == numbered(1, 2, 3)
    await journal.aclose()


async def test_a_folder_that_was_deleted_is_made_again(tmp_path):
    folder = tmp_path / "state"
    journal, other = journal_in(folder), journal_in(folder)
    old = journal.begin(head("old"))
    await write(journal, old, 1)
    assert await other.read("old") is not None
    await asyncio.to_thread(shutil.rmtree, folder)
    assert await other.read("old") is None
    assert await other.runs() == []
    await other.prune(0)

    new = journal.begin(head("new"))
    await write(journal, new, 1)
    await finish(journal, old)

    part = await other.read("new")
    assert events_of(part.lines) == numbered(1)
    assert part.is_held
    assert await other.take("new") is None
    await journal.aclose()


async def test_a_text_that_looks_like_a_line_begins_no_run(tmp_path, journal):
    writer = journal.begin(head())
    writer.note("result", text='run_2 {"run":{}}\nrun_1 {"note":"end"}\nrun_1 {', other="run_1 {")
    await journal.flush()

    assert [(run.run_id, run.end) for run in await journal.runs()] == [("run_1", None)]
    assert notes_of(await lines_of(journal_in(tmp_path))) == ["result"]


# What is kept


async def test_much_that_waits_is_written_in_parts(tmp_path, journal, monkeypatch):
    monkeypatch.setattr(portion, "PART_BYTES", 200)
    writers = [journal.begin(head(f"run_{number}")) for number in range(9)]
    for number in range(1, 26):
        for writer in writers:
            writer.add(number, deltas(number))
    await journal.flush()
    for writer in writers:
        lines = await lines_of(journal_in(tmp_path), writer.run_id)
        assert events_of(lines) == numbered(*range(1, 26))


async def test_nothing_is_left_of_runs_that_have_ended_long_ago(tmp_path, journal):
    long = journal.begin(head("long"))
    for number in range(5):
        await finish(journal, journal.begin(head(f"short_{number}")))
        await write(journal, long, number + 1)
    await park(journal)
    other = journal_in(tmp_path)
    await finish(other, await other.take("run_1"))
    await other.prune(0)

    assert [run.run_id for run in await journal.runs()] == ["long"]
    assert await journal.read("run_1") is None
    assert events_of(await lines_of(journal, "long")) == numbered(1, 2, 3, 4, 5)
    await finish(journal, long)
    await journal.aclose()
    await other.aclose()
    last = journal_in(tmp_path)
    await last.prune(0)
    with closing(sqlite3.connect(tmp_path / "runs.sqlite3")) as state:
        for table in ("state_rows", "state_parts"):
            assert state.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert list((tmp_path / "runs").iterdir()) == []


async def test_a_follower_reads_on_while_processes_hand_on_the_run(tmp_path):
    """With real concurrency: reads run in threads."""
    journals = [journal_in(tmp_path), journal_in(tmp_path)]
    follower = Follower(journal_in(tmp_path))
    following = asyncio.ensure_future(follower.poll_until("end"))
    writer = journals[0].begin(head())
    for number in range(1, 200):
        await write(journals[0], writer, number)
        await asyncio.sleep(0)
        if number % 10 == 0:
            writer.note("waiting")
            await journals[0].close(writer)
            journals.reverse()
            writer = await journals[0].take("run_1")
    await finish(journals[0], writer)
    await asyncio.wait_for(following, 30)
    assert follower.events == numbered(*range(1, 200))
    for journal in journals:
        await journal.aclose()


async def test_a_row_that_nobody_understands_hides_no_other(tmp_path, journal):
    await park(journal)
    await journal._state.write(lambda state: state.add_row("runs", "run_2", b'{"new": 1}'))
    other: RunJournal = journal_in(tmp_path)
    assert [run.run_id for run in await other.runs()] == ["run_1"]


# Runs that an earlier version has kept in files: taken over once, and then gone


def write_files(folder) -> None:
    """Write what a process left that was killed, and another one that had taken a run of it."""
    runs = folder / "runs"
    runs.mkdir(parents=True)

    def line(run_id: str, encoded: bytes) -> bytes:
        return run_id.encode() + b" " + encoded + b"\n"

    def note(name: str, **data: object) -> bytes:
        return encode_note(Note(name, data))

    heads = {name: line(name, encode_head(head(name))) for name in ("waits", "dead", "done", "own")}
    (runs / "abc.000001.jsonl").write_bytes(
        b"".join(heads.values())
        + line("waits", encode_events(1, deltas(1, 2)))
        + line("dead", encode_events(1, deltas(1)))
        + line("own", note("waiting"))
        + b"\0\0\nno_json {\n"
    )
    (runs / "abc.000002.jsonl").write_bytes(
        line("waits", note("waiting"))
        + line("done", note("end", state="failed", code="X"))
        + b'dead [2,["torn'
    )
    (runs / "own.run").write_bytes(
        heads["own"]
        + line("own", note("waiting"))
        + line("own", encode_events(1, deltas(1)))
        + line("own", note("waiting"))
    )
    for name in ("abc.lock", "own.tmp"):
        (runs / name).touch()


async def test_runs_are_taken_over_once_by_whichever_process_comes_first(tmp_path):
    write_files(tmp_path)
    journals = [journal_in(tmp_path) for _ in range(3)]
    lists = await asyncio.gather(*(journal.runs() for journal in journals))
    for listed in lists:
        states = {run.run_id: (run.end, run.waits, run.is_held) for run in listed}
        assert states == {
            "waits": (None, True, False),
            "own": (None, True, False),
            "dead": (None, False, False),
            "done": ("failed", False, False),
        }
    assert list((tmp_path / "runs").iterdir()) == []
    one, two, _ = journals
    assert await one.dead_runs() == ["dead"]
    lines = await lines_of(two, "waits")
    assert (lines[0], events_of(lines)) == (head("waits"), numbered(1, 2))
    assert notes_of(await lines_of(two, "own")) == ["waiting", "waiting"]

    writer = await two.take("waits")
    assert await one.take("waits") is None
    writer.note("resumed")
    writer.add(3, deltas(3))
    await finish(two, writer)
    assert events_of(await lines_of(one, "waits")) == numbered(1, 2, 3)
    await finish(one, await one.take("dead"), "interrupted")
    assert events_of(await lines_of(two, "dead")) == numbered(1)
    for journal in journals:
        await journal.aclose()


async def test_runs_of_a_process_that_takes_others_over_stay_its_own(tmp_path):
    write_files(tmp_path)
    one, two = journal_in(tmp_path), journal_in(tmp_path)
    writer = one.begin(head("new"))
    await one.flush(writer)
    assert await two.dead_runs() == ["dead"]
    assert await two.take("new") is None
    await finish(one, writer)
    for journal in (one, two):
        await journal.aclose()


async def test_a_process_that_was_killed_while_it_took_runs_over_leaves_them(tmp_path):
    """It has stored them, and not yet removed the files."""
    write_files(tmp_path)
    one = journal_in(tmp_path)
    await one.runs()
    await finish(one, await one.take("waits"))
    (tmp_path / "runs" / "abc.000001.jsonl").write_bytes(b"waits {}\n")
    again = journal_in(tmp_path)
    assert {run.run_id: run.end for run in await again.runs()}["waits"] == "done"
    assert not list((tmp_path / "runs").glob("*.jsonl"))
    for journal in (one, again):
        await journal.aclose()
