"""The journal in files: what other processes see of it, whatever happens to the one that writes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.files import FileRunJournal
from mochi_server.chat.journal.index import SETTLE_SECONDS
from tests.support.chance import moments
from tests.support.runs import (
    Follower,
    answer,
    deltas,
    events_of,
    finish,
    head,
    lines_of,
    notes_of,
    process,
)

KILLS = 30


def numbered(*numbers: int) -> list[tuple[int, object]]:
    return list(zip(numbers, deltas(*numbers), strict=True))


def make_old(folder: Path, seconds: float = 1000) -> None:
    """Let all files be that old."""
    then = time.time() - seconds
    for path in folder.iterdir():
        os.utime(path, (then, then))


def names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix == suffix)


async def write(journal: FileRunJournal, writer: RunWriter, *numbers: int) -> None:
    for number in numbers:
        writer.add(number, deltas(number))
    await journal.flush()


async def park(journal: FileRunJournal, run_id: str = "run_1") -> None:
    writer = journal.begin(head(run_id))
    writer.add(1, deltas(1))
    writer.note("waiting")
    await journal.close(writer)


# A process that dies


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_killed_process_leaves_every_line_that_was_flushed(tmp_path):
    for number, moment in enumerate(moments(random.Random(14), KILLS, 0.2)):
        await _write_and_kill(tmp_path / str(number), moment, 4000 if number % 2 else 10**9)


async def _write_and_kill(folder: Path, moment: float, segment_bytes: int) -> None:
    runs = [f"run_{number}" for number in range(3)]
    journal = FileRunJournal(folder)
    follower = Follower(journal)
    async with process("write", folder, len(runs), segment_bytes) as child:
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
    assert follower.events == numbered(*range(1, follower.last + 1))
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
    ends = {run.run_id: run.end for run in await FileRunJournal(folder).runs()}
    assert ends == dict.fromkeys(runs, "interrupted")


async def test_of_eight_processes_one_takes_a_parked_run(tmp_path):
    journal = FileRunJournal(tmp_path)
    await park(journal)
    await _take_by_eight(tmp_path, "run_1")
    # That process is dead by now: what it left is taken as well.
    await _take_by_eight(tmp_path, "run_1")
    await journal.aclose()


async def _take_by_eight(folder: Path, run_id: str) -> None:
    reader = FileRunJournal(folder)
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(process("take", folder, run_id)) for _ in range(8)
        ]
        assert await asyncio.gather(*map(answer_only, children)) == ["ready"] * 8
        answers = asyncio.gather(*map(answer, children))
        while not answers.done():  # who looks is in nobody's way
            await reader.read(run_id)
        assert sorted(await answers) == ["none"] * 7 + ["taken"]
        part = await reader.read(run_id)
        assert part.is_held
    assert not (await reader.read(run_id)).is_held


async def answer_only(child: asyncio.subprocess.Process) -> str:
    return (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()


# Lines in part, full disks


@pytest.mark.parametrize("torn", [b"th", b"much longer than what follows" * 9])
async def test_part_of_a_line_is_not_read_and_not_continued(tmp_path, torn):
    journal, other = FileRunJournal(tmp_path), FileRunJournal(tmp_path)
    await park(journal)
    writer = await journal.take("run_1")
    await write(journal, writer, 2)
    await journal.aclose()
    for name in (*names(tmp_path, ".jsonl"), *names(tmp_path, ".run")):
        with (tmp_path / name).open("ab") as file:
            file.write(b'run_1 [3,["' + torn)

    assert events_of(await lines_of(other)) == numbered(1, 2)
    taken = await other.take("run_1")
    await write(other, taken, 3)
    assert events_of(await lines_of(FileRunJournal(tmp_path))) == numbered(1, 2, 3)
    await finish(other, taken)


async def test_lines_that_are_none_hide_no_others(tmp_path):
    journal = FileRunJournal(tmp_path)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    (name,) = names(tmp_path, ".jsonl")
    await journal.aclose()
    with (tmp_path / name).open("ab") as file:
        for line in (b"\0\0\0", b"", b"run_1", b"run_1 {", b'\xff {"run":{}}', b'../x {"run":1}'):
            file.write(line + b"\n")
        file.write(b'run_1 [2,["2 "]]\n')
    for strange in ("notes.jsonl", "x.y.jsonl", "a.000001.jsonl.bak", "folder.run"):
        (tmp_path / strange).mkdir()

    other = FileRunJournal(tmp_path)
    assert events_of(await lines_of(other)) == numbered(1, 2)
    assert [run.run_id for run in await other.runs()] == ["run_1"]


async def test_a_text_that_looks_like_a_line_begins_no_run(tmp_path):
    journal = FileRunJournal(tmp_path)
    writer = journal.begin(head())
    writer.note("result", text='run_2 {"run":{}}\nrun_1 {"note":"end"}\nrun_1 {', other="run_1 {")
    await journal.flush()

    assert [(run.run_id, run.end) for run in await journal.runs()] == [("run_1", None)]
    assert notes_of(await lines_of(FileRunJournal(tmp_path))) == ["result"]
    await journal.aclose()


@pytest.mark.parametrize("size", [10, 1400, 1501, 3000])
async def test_a_full_disk_loses_nothing_once_it_has_room(tmp_path, size):
    """Lines that another process may have read already stay where they are."""
    other = FileRunJournal(tmp_path)
    followers = [Follower(other, f"run_{number}") for number in range(5)]
    async with process("fill", tmp_path, size) as child:
        said = asyncio.ensure_future(answer_only(child))
        while not said.done():
            for follower in followers:
                await follower.poll()
        assert await said == "full"
        assert followers[0].last < 100
        assert await answer(child) == "free"
        for number, follower in enumerate(followers):
            await follower.poll()
            assert follower.events == numbered(*range(1, 101 if number == 4 else 102))
            assert follower.notes == ["end"]


async def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path, caplog):
    folder = tmp_path / "runs"
    folder.write_bytes(b"in the way")
    journal = FileRunJournal(folder)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    await write(journal, writer, 2)
    assert len(caplog.records) == 1
    assert await journal.read("run_1") is None
    await journal.prune(0)

    folder.unlink()
    await write(journal, writer, 3)

    assert events_of(await lines_of(FileRunJournal(folder))) == numbered(1, 2, 3)
    await journal.aclose()


# Files that come and go


async def test_a_follower_reads_on_in_the_next_file_and_in_the_own_one(tmp_path):
    journal, other = FileRunJournal(tmp_path, segment_bytes=300), FileRunJournal(tmp_path)
    noise, writer = journal.begin(head("noise")), journal.begin(head())
    fast, slow = Follower(other), Follower(FileRunJournal(tmp_path))
    for number in range(1, 101):
        noise.add(number, deltas(number))
        if number % 20 > 10:
            writer.add(number, deltas(number))
        await journal.flush()
        await fast.poll()
        if number == 15:
            await slow.poll()
    await journal.aclose()
    numbers = [number for number in range(1, 101) if number % 20 > 10]
    assert len(names(tmp_path, ".jsonl")) > 5

    taken = await other.take("run_1")
    await fast.poll()
    for number in range(101, 111):
        await write(other, taken, number)
        await fast.poll()
    await slow.poll()
    assert slow.is_held
    await finish(other, taken)

    late = Follower(FileRunJournal(tmp_path))
    for follower in (fast, slow, late):
        await follower.poll_until("end")
        assert follower.events == numbered(*numbers, *range(101, 111))
        assert not follower.is_held


async def test_a_follower_reads_while_the_owner_rotates_and_another_takes(tmp_path):
    """The same with real concurrency: reads run in threads."""
    for turn in range(10):
        folder = tmp_path / str(turn)
        journal, other = FileRunJournal(folder, segment_bytes=200), FileRunJournal(folder)
        follower = Follower(FileRunJournal(folder))
        following = asyncio.ensure_future(follower.poll_until("end"))
        writer = journal.begin(head())
        for number in range(1, 50):
            await write(journal, writer, number)
            await asyncio.sleep(0)
        writer.note("waiting")
        await journal.close(writer)
        taken = await other.take("run_1")
        for number in range(50, 100):
            await write(other, taken, number)
            await asyncio.sleep(0)
        await finish(other, taken)

        await asyncio.wait_for(following, 30)

        assert follower.events == numbered(*range(1, 100))
        await journal.aclose()


async def test_files_change_with_time(tmp_path):
    journal = FileRunJournal(tmp_path, segment_seconds=0.05)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    await asyncio.sleep(0.06)
    await write(journal, writer, 2)

    assert len(names(tmp_path, ".jsonl")) == 2
    assert events_of(await lines_of(journal)) == numbered(1, 2)
    await journal.aclose()


async def test_files_are_removed_when_all_of_their_runs_have_ended_long_ago(tmp_path):
    journal, other = FileRunJournal(tmp_path, segment_bytes=1), FileRunJournal(tmp_path)
    long = journal.begin(head("long"))
    await write(journal, long, 1)
    short = journal.begin(head("short"))
    await finish(journal, short)
    await write(journal, long, 2)
    make_old(tmp_path)

    await other.prune(600)
    assert len(names(tmp_path, ".jsonl")) == 3
    await finish(journal, long)
    await other.prune(600)  # its end is young
    assert events_of(await lines_of(FileRunJournal(tmp_path), "long")) == numbered(1, 2)
    make_old(tmp_path)
    await other.prune(600)

    assert len(names(tmp_path, ".jsonl")) == 1  # the one that is written
    assert {run.run_id for run in await other.runs()} == set()
    assert await other.read("short") is None
    await journal.prune(600)
    assert names(tmp_path, ".jsonl") == []

    await write(journal, journal.begin(head("next")), 1)
    assert (await other.read("next")).is_held
    await journal.aclose()


async def test_a_parked_run_keeps_no_file_that_came_later(tmp_path):
    journal = FileRunJournal(tmp_path, segment_bytes=1)
    await park(journal)
    for number in range(5):
        await finish(journal, journal.begin(head(f"other_{number}")))
    make_old(tmp_path)

    await journal.prune(600)

    assert len(names(tmp_path, ".jsonl")) == 1
    assert events_of(await lines_of(FileRunJournal(tmp_path))) == numbered(1)
    await journal.aclose()


async def test_a_run_that_ended_in_its_own_file_does_not_live_again(tmp_path):
    """Its first file stays for the sake of another run, and does not know of the end."""
    journal, other = FileRunJournal(tmp_path), FileRunJournal(tmp_path)
    stays = journal.begin(head("stays"))
    await write(journal, stays, 1)
    await park(journal)
    await finish(other, await other.take("run_1"))
    make_old(tmp_path)

    await other.prune(600)
    await FileRunJournal(tmp_path).prune(600)
    ends = {run.run_id: run.end for run in await FileRunJournal(tmp_path).runs()}
    assert ends == {"stays": None, "run_1": "done"}

    await finish(journal, stays)
    await journal.aclose()
    make_old(tmp_path)
    await other.prune(600)
    await other.prune(600)
    assert list(tmp_path.iterdir()) == []


async def test_what_a_crash_left_of_an_own_file_is_not_used(tmp_path):
    journal = FileRunJournal(tmp_path)
    await park(journal)
    (tmp_path / "run_1.tmp").write_bytes(b'run_1 [1,["1 "]]\n' * 100)

    taken = await journal.take("run_1")
    await write(journal, taken, 2)

    assert events_of(await lines_of(FileRunJournal(tmp_path))) == numbered(1, 2)
    await journal.aclose()


async def test_what_a_crash_left_is_removed(tmp_path):
    journal = FileRunJournal(tmp_path)
    await write(journal, journal.begin(head()))
    for name in ("abc.lock", "abc.000001.tmp", "run_9.tmp", "abc.000002.jsonl"):
        (tmp_path / name).touch()
    make_old(tmp_path)
    (tmp_path / "young.tmp").touch()

    await FileRunJournal(tmp_path).prune(600)

    assert names(tmp_path, ".tmp") == ["young.tmp"]
    assert len(names(tmp_path, ".lock")) == len(names(tmp_path, ".jsonl")) == 1
    await journal.aclose()


async def test_a_folder_that_was_deleted_is_made_again(tmp_path):
    folder = tmp_path / "runs"
    journal, other = FileRunJournal(folder), FileRunJournal(folder)
    old = journal.begin(head("old"))
    await write(journal, old, 1)
    assert await other.read("old") is not None
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert await other.read("old") is None
    assert await other.runs() == []
    await other.prune(0)

    new = journal.begin(head("new"))
    await write(journal, new, 1)

    part = await other.read("new")
    assert events_of(part.lines) == numbered(1)
    assert part.is_held
    assert await other.take("new") is None
    await journal.aclose()


@pytest.mark.parametrize("segment_bytes", [1, 10**9])
async def test_a_poll_of_a_silent_run_does_not_look_into_the_folder(tmp_path, segment_bytes):
    """And yet sees what is written, parked, taken and killed afterwards."""
    journal = FileRunJournal(tmp_path, segment_bytes=segment_bytes)
    other = FileRunJournal(tmp_path)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    follower = Follower(other)
    await follower.poll()
    await asyncio.sleep(SETTLE_SECONDS + 0.1)
    await follower.poll()
    part = await other.read("run_1")
    with pytest.raises(StopIteration) as answered:
        other.read("run_1", part.position).send(None)  # at once, in no thread
    assert answered.value.value == ([], part.position, True)
    assert follower.is_held

    await write(journal, writer, 2)
    await follower.poll()
    assert follower.last == 2
    writer.note("waiting")
    await journal.close(writer)
    await follower.poll()
    assert not follower.is_held
    taken = await journal.take("run_1")
    await write(journal, taken, 3)
    await follower.poll()
    assert (follower.last, follower.is_held) == (3, True)
    await asyncio.sleep(SETTLE_SECONDS + 0.1)
    await follower.poll()
    await follower.poll()
    await journal.aclose()
    await follower.poll()
    assert not follower.is_held


async def test_a_poll_sees_the_next_file_that_another_call_has_found(tmp_path):
    journal, other = FileRunJournal(tmp_path, segment_bytes=1), FileRunJournal(tmp_path)
    writer = journal.begin(head())
    await write(journal, writer, 1)
    follower = Follower(other)
    await follower.poll()
    await write(journal, writer, 2)
    await other.runs()
    await asyncio.sleep(SETTLE_SECONDS + 0.1)
    await other.runs()

    await follower.poll()

    assert follower.events == numbered(1, 2)
    await journal.aclose()


async def test_a_cancelled_take_lets_the_run_go(tmp_path):
    journal = FileRunJournal(tmp_path)
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
    await journal.aclose()
