"""The journal in Redis: leases, lost connections, a Redis that has forgotten everything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.records import RunHead
from mochi_server.chat.journal.redis import RedisRunJournal
from mochi_server.errors import StorageError
from tests.support.redis import needs_redis
from tests.support.runs import (
    Follower,
    answer,
    deltas,
    events_of,
    finish,
    head,
    lines_of,
    notes_of,
    python,
)

pytestmark = needs_redis

PROCESS = """
import asyncio, sys
from mochi_server.chat.journal.redis import RedisRunJournal
from tests.support.runs import deltas, head

async def main():
    role, url, lease_seconds = sys.argv[1:]
    journal = RedisRunJournal(url, lease_seconds=float(lease_seconds))
    if role == "write":
        writer = journal.begin(head())
        writer.add(1, deltas(1))
        await journal.flush()
        print("written", flush=True)
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        writer = await journal.take("run_1")
        print("none" if writer is None else "taken", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@asynccontextmanager
async def journals(*urls: str, **options: Any) -> AsyncIterator[list[RedisRunJournal]]:
    made = [RedisRunJournal(url, **options) for url in urls]
    try:
        yield made
    finally:
        for journal in made:
            await journal.aclose()


async def write(journal: RedisRunJournal, writer: RunWriter, *numbers: int) -> None:
    for number in numbers:
        writer.add(number, deltas(number))
    await journal.flush()


async def until_held(journal: RedisRunJournal, *, is_held: bool) -> None:
    """Wait until there is a lease of the run, or until it has expired."""
    with anyio.fail_after(30):
        while (await journal.read("run_1")).is_held is not is_held:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


def numbers_of(lines: Any) -> list[int]:
    return [number for number, _ in events_of(lines)]


# Who has a run


async def test_of_eight_processes_one_takes_a_run_of_a_dead_one(redis):
    async with journals(redis.url) as [reader]:
        async with python("-c", PROCESS, "write", redis.url, 1) as child:
            assert await child.stdout.readline() == b"written\n"
            await redis.until_renewed("mochi:run:run_1:lease", 1)
        await until_held(reader, is_held=False)
        await _take_by_eight(redis.url)


async def _take_by_eight(url: str) -> None:
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(python("-c", PROCESS, "take", url, 600))
            for _ in range(8)
        ]
        for child in children:
            assert await child.stdout.readline() == b"ready\n"
        answers = await asyncio.gather(*map(answer, children))
        assert sorted(answers) == ["none"] * 7 + ["taken"]


async def test_a_lease_is_renewed_though_nothing_is_written(redis):
    async with journals(redis.url, redis.url, lease_seconds=0.3) as [own, other]:
        writer = own.begin(head())
        await own.flush()
        for _ in range(4):  # longer than one lease
            await redis.until_renewed("mochi:run:run_1:lease", 0.3)
        await until_held(other, is_held=True)
        await finish(own, writer)
        assert not (await other.read("run_1")).is_held


async def test_who_was_cut_off_cannot_write_what_another_has_taken(redis, line, caplog):
    async with journals(line.url, redis.url, lease_seconds=0.3) as [own, other]:
        writer = own.begin(head())
        await write(own, writer, 1)
        line.cut()
        await write(own, writer, 2)
        await until_held(other, is_held=False)
        taken = await other.take("run_1")
        await write(other, taken, 100)
        line.mend()
        await write(own, writer, 3)
        assert writer.is_lost
        assert "is lost to this process" in caplog.text
        await write(own, writer, 4)
        await finish(own, writer)
        assert numbers_of(await lines_of(other)) == [1, 100]
        await write(other, taken, 101)
        await finish(other, taken, "interrupted")
        assert numbers_of(await lines_of(own)) == [1, 100, 101]
        assert [run.end for run in await own.runs()] == ["interrupted"]


async def test_who_was_cut_off_goes_on_with_what_nobody_has_taken(redis, line):
    async with journals(line.url, redis.url, lease_seconds=0.2) as [own, other]:
        writer = own.begin(head())
        await write(own, writer, 1)
        line.cut()
        await write(own, writer, 2)
        await until_held(other, is_held=False)
        line.mend()
        await write(own, writer, 3)
        assert not writer.is_lost
        await until_held(other, is_held=True)
        assert numbers_of(await lines_of(other)) == [1, 2, 3]
        await finish(own, writer)


# Lost connections


async def test_much_that_waits_is_written_in_parts(redis, monkeypatch):
    monkeypatch.setattr("mochi_server.chat.journal.redis.MAX_LINES_AT_ONCE", 10)
    async with journals(redis.url, redis.url) as [own, other]:
        writers = [own.begin(head(f"run_{number}")) for number in range(3)]
        for number in range(1, 26):
            for writer in writers:
                writer.note("started", call=number)
        for _ in range(8):
            await own.flush()
        for writer in writers:
            _, *notes = await lines_of(other, writer.run_id)
            assert [note.data["call"] for note in notes] == list(range(1, 26))


async def test_what_is_sent_again_is_written_once(redis, line):
    async with journals(line.url, redis.url) as [own, other]:
        writers = [own.begin(head(f"run_{number}")) for number in range(3)]
        for number in range(1, 10):
            line.is_mute = number % 3 == 1
            for writer in writers:
                writer.add(number, deltas(number))
                writer.note("started", call=number)
            await own.flush()
            line.is_mute = False
        for writer in writers:
            lines = await lines_of(other, writer.run_id)
            assert numbers_of(lines) == list(range(1, 10))
            assert notes_of(lines) == ["started"] * 9
            assert isinstance(lines[0], RunHead)
            assert len([each for each in lines if isinstance(each, RunHead)]) == 1


async def test_a_run_goes_on_when_redis_has_forgotten_it(redis):
    async with journals(redis.url, redis.url) as [own, other]:
        follower = Follower(other)
        writer = own.begin(head())
        await write(own, writer, 1, 2)
        await follower.poll()
        await redis.stop()
        await write(own, writer, 3)
        with pytest.raises(StorageError):
            await other.read("run_1")
        with pytest.raises(StorageError):
            await other.take("run_1")
        with pytest.raises(StorageError):
            await other.runs()
        await redis.start()
        assert await other.read("run_1") is None
        await write(own, writer, 4)
        await finish(own, writer)
        await follower.poll()
        assert [number for number, _ in follower.events] == [1, 2, 3, 4]
        assert (await lines_of(other))[0] == head()
        assert [run.end for run in await other.runs()] == ["done"]


async def test_a_run_that_was_cut_off_too_long_is_not_made_anew(redis):
    async with journals(redis.url, redis.url, lease_seconds=0.2) as [own, other]:
        writer = own.begin(head())
        await write(own, writer, 1)
        await redis.stop()
        await asyncio.sleep(0.3)
        await redis.start()
        await write(own, writer, 2)
        assert writer.is_lost
        assert await other.read("run_1") is None


async def test_a_follower_waits_while_redis_is_away(redis, caplog):
    caplog.set_level(logging.ERROR)
    async with journals(redis.url) as [journal]:
        await redis.stop()
        journal.follow_seconds = 0.05
        with anyio.fail_after(30):
            await journal.wait("run_1", 3)


# How much is kept


async def test_a_journal_that_is_closed_waits_once_for_a_hanging_redis(redis):
    async with journals(redis.url) as [journal]:
        writers = [journal.begin(head(f"run_{number}")) for number in range(4)]
        await journal.flush()
        for writer in writers:
            writer.add(1, deltas(1))
        redis.hang()
        with anyio.fail_after(15):
            await journal.aclose()
        redis.resume()


async def test_the_lines_of_a_run_are_bounded_and_its_head_stays(redis):
    async with journals(redis.url, redis.url, max_lines=100) as [own, other]:
        follower = Follower(other)
        writer = own.begin(head())
        for number in range(1, 501):
            await write(own, writer, number)
            if number % 50 == 0:
                await follower.poll()
        lines = await lines_of(other)
        assert lines[0] == head()
        numbers = numbers_of(lines)
        assert 100 <= len(numbers) <= 250
        assert numbers == list(range(501 - len(numbers), 501))
        assert [number for number, _ in follower.events] == list(range(1, 501))
        await finish(own, writer)


async def test_nothing_is_left_of_a_pruned_run(redis):
    async with journals(redis.url) as [journal]:
        for number in range(3):
            await finish(journal, journal.begin(head(f"run_{number}")))
        await asyncio.sleep(0.01)
        await journal.prune(0)
        assert await redis.keys() == []
