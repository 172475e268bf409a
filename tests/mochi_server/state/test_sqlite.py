"""The state in a file: processes that make it at once, and what a lost or broken one costs."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial

import pytest

from mochi_server.errors import StorageError
from mochi_server.state import SQLiteState, Version

STATE_FILE, BROKEN_FILE = "state.sqlite3", "state.broken.sqlite3"

ADDER = """
import asyncio, sys
from pathlib import Path
from mochi_server.state import SQLiteState

input()
state = SQLiteState(Path(sys.argv[1]))
for number in range(50):
    asyncio.run(state.write(lambda rows: rows.add_row("k", f"{sys.argv[2]}.{number}", b"v")))
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "state"


async def add(state, name, value=b"1"):
    return await state.write(lambda rows: rows.add_row("k", name, value))


async def ids(state):
    return await state.read(lambda rows: rows.row_ids("k"))


def test_processes_that_make_it_at_once_have_the_same(folder):
    processes = [
        subprocess.Popen([sys.executable, "-c", ADDER, folder, str(number)], stdin=subprocess.PIPE)
        for number in range(4)
    ]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4

    async def check() -> None:
        state = SQLiteState(folder)
        expected = {f"{process}.{row}" for process in range(4) for row in range(50)}
        assert await ids(state) == expected
        assert (await state.read(lambda rows: rows.version())).number == 200
        await state.aclose()

    asyncio.run(check())


async def test_reading_makes_no_file_and_a_lost_one_is_another_state(folder):
    one, two = SQLiteState(folder), SQLiteState(folder)
    assert await ids(one) == set()
    assert not folder.exists()
    await add(one, "a")
    before = await two.read(lambda rows: rows.version())
    await asyncio.to_thread(shutil.rmtree, folder)
    after = await two.read(lambda rows: rows.version())
    assert (await ids(two), after.number) == (set(), 0)
    assert after.identity != before.identity
    assert await add(two, "b")
    assert await ids(one) == {"b"}
    await one.aclose()
    await two.aclose()
    assert await ids(SQLiteState(folder)) == {"b"}


@pytest.mark.parametrize("place", [0, 4096 * 3])
async def test_a_broken_file_is_set_aside(folder, caplog, place):
    one = SQLiteState(folder)
    await add(one, "a", b"x" * 100_000)
    await one.aclose()
    path = folder / STATE_FILE
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 20_000)
    state = SQLiteState(folder)
    if place:  # noticed by who reads there
        with pytest.raises(StorageError):
            await state.read(lambda rows: rows.rows_since("k", 0))
    assert await ids(state) == set()
    assert await add(state, "b")
    assert caplog.text.count(f"It is now {BROKEN_FILE}.") == 1
    assert (folder / BROKEN_FILE).exists()
    assert await ids(one) == {"b"}
    assert isinstance(await one.read(lambda rows: rows.version()), Version)
    await one.aclose()
    await state.aclose()


async def test_a_file_of_another_version_is_left_alone_and_named(folder):
    one = SQLiteState(folder)
    await add(one, "a")
    await one.aclose()
    with closing(sqlite3.connect(folder / STATE_FILE)) as connection:
        connection.execute("PRAGMA user_version = 7")
    for use in (ids, partial(add, name="b"), SQLiteState.version):
        with pytest.raises(StorageError, match=r"another version .* format 7, .* Update"):
            await use(one)
    with closing(sqlite3.connect(folder / STATE_FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
    assert not (folder / BROKEN_FILE).exists()


async def test_a_file_system_without_sqlites_log_is_named_once(folder, monkeypatch, caplog):
    connect = sqlite3.connect
    monkeypatch.setattr(  # has no shared memory, as on a network drive
        sqlite3, "connect", lambda name, **options: connect(f"{name}&vfs=unix-dotfile", **options)
    )
    state = SQLiteState(folder)
    for name in ("a", "b"):
        assert await add(state, name)
        await state.aclose()
    assert await ids(state) == {"a", "b"}
    assert caplog.text.count("Keep .mochi on a local disk") == 1
    await state.aclose()


HOLDER = """
import asyncio, sys
from pathlib import Path
from mochi_server.state import SQLiteState

state = SQLiteState(Path(sys.argv[1]))
for name in sys.stdin:
    asyncio.run(state.write(lambda rows: rows.add_row("k", name.strip(), b"v")))
    print(name, end="", flush=True)
"""


@pytest.fixture
def use(folder):
    """Another process that has the file open: adds a row."""
    command = [sys.executable, "-c", HOLDER, folder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:

        def one(name):
            other.stdin.write(f"{name}\n")
            other.stdin.flush()
            return other.stdout.readline() == f"{name}\n"

        yield one
        other.stdin.close()
        assert other.wait(60) == 0


async def test_a_file_that_was_deleted_alone_is_made_again_beside_who_has_it_open(folder, use):
    state = SQLiteState(folder)
    await add(state, "a")
    assert await asyncio.to_thread(use, "b")
    (folder / STATE_FILE).unlink()
    assert await add(state, "c", b"x" * 10_000)
    assert await asyncio.to_thread(use, "d")
    assert await add(state, "e")
    for _ in range(2):
        assert await ids(state) == {"c", "d", "e"}
        await state.aclose()
