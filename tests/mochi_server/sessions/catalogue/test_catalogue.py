"""The list of sessions from a file that is only a cache."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from functools import partial

import anyio
import pytest

from mochi_server.core.leases import FileLock
from mochi_server.errors import StorageError
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import JSONFileStorage, MemoryStorage, SessionFilter, SessionManager
from mochi_server.sessions.catalogue.listing import write_cursor
from tests.support.waiting import until


class CountingStorage(JSONFileStorage):
    """Counts how often all sessions are looked at, and how many are read."""

    checks = 0
    reads = 0

    async def entries(self):
        self.checks += 1
        return await super().entries()

    async def read_heads(self, session_ids, size):
        self.reads += len(session_ids)
        return await super().read_heads(session_ids, size)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "catalogue.sqlite3"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Let no check that the machine held up be followed by a pause of half a minute."""
    monkeypatch.setattr("mochi_server.sessions.catalogue.catalogue._MAX_PAUSE", 1.0)


@pytest.fixture
def in_time(monkeypatch):
    """Let a change wait for the catalogue until it is in it, however busy this machine is.

    A conversation waits 20 ms at most; of what takes longer, other processes learn later.
    """
    monkeypatch.setattr("mochi_server.sessions.catalogue.catalogue._OWN_CHANGE_SECONDS", 60.0)


@asynccontextmanager
async def opened(tmp_path, path, *, watch=False, sweep_seconds=3600.0):
    """A process that shares the sessions and the catalogue."""
    storage = CountingStorage(tmp_path / "sessions")
    manager = SessionManager(storage, catalogue_path=path, sweep_seconds=sweep_seconds)
    if watch:
        manager.catalogue.watch()
    yield manager
    await manager.aclose()


async def ids(manager, **options):
    return [entry["session_id"] for entry in (await manager.list(**options)).entries]


@pytest.mark.usefixtures("in_time")
async def test_what_a_process_writes_is_in_the_list_of_another_at_once(tmp_path, path):
    async with (
        opened(tmp_path, path, watch=True) as mine,
        opened(tmp_path, path, watch=True) as yours,
    ):
        assert await ids(mine) == await ids(yours) == []
        before = mine.storage.checks, yours.storage.checks
        for number in range(5):
            await mine.create("m", session_id=f"s{number}")
            assert (await ids(yours))[0] == f"s{number}"
            async with mine.edit("s0") as session:
                session.append(UserMessage(content=str(number)))
            listed = json.loads(await yours.list_json())
            assert listed["sessions"][0]["message_count"] == number + 1
        await mine.delete("s3")
        assert await ids(yours) == ["s0", "s4", "s2", "s1"]
        assert (mine.storage.checks, yours.storage.checks) == before


async def test_after_a_restart_no_file_is_read_and_none_looked_at(tmp_path, path):
    async with opened(tmp_path, path) as manager:
        for number in range(20):
            await manager.create("m", session_id=f"s{number}")
        expected = await ids(manager)
    async with opened(tmp_path, path) as manager:  # a command, which has no background
        assert await ids(manager) == expected
        assert (manager.storage.checks, manager.storage.reads) == (1, 0)
    async with opened(tmp_path, path, watch=True) as manager:
        assert await ids(manager) == expected
        assert manager.storage.reads == 0


async def test_a_restart_sees_what_was_added_and_removed_meanwhile(tmp_path, path):
    async with opened(tmp_path, path, watch=True) as manager:
        await manager.create("m", session_id="one")
        await manager.create("m", session_id="two")
        assert await ids(manager) == ["two", "one"]
    await anyio.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    content = (tmp_path / "sessions" / "two.json").read_bytes()
    (tmp_path / "sessions" / "three.json").write_bytes(content)
    (tmp_path / "sessions" / "one.json").unlink()
    async with opened(tmp_path, path, watch=True) as manager:
        assert await ids(manager) == ["three", "two"]


async def test_what_is_changed_by_hand_is_noticed_in_the_background(tmp_path, path):
    async with opened(tmp_path, path, watch=True, sweep_seconds=0.02) as manager:
        for name in ("one", "two"):
            await manager.create("m", session_id=name)
        assert await ids(manager) == ["two", "one"]
        file = tmp_path / "sessions" / "one.json"
        file.write_bytes(file.read_bytes().replace(b'"model": "m"', b'"model": "edited"'))

        async def is_edited():
            return "edited" in {entry["model"] for entry in (await manager.list()).entries}

        await until(is_edited)
        file.with_name("three.json").write_bytes(file.read_bytes())
        file.unlink()

        async def is_replaced():
            return await ids(manager) == ["two", "three"]

        await until(is_replaced)
        file.with_name("three.json").write_bytes(b"{")

        async def is_problem():
            return [each["session_id"] for each in (await manager.list()).problems] == ["three"]

        await until(is_problem)


async def test_of_several_processes_one_watches_and_another_takes_over(tmp_path, path):
    async with opened(tmp_path, path, watch=True, sweep_seconds=0.02) as second:
        async with opened(tmp_path, path, watch=True, sweep_seconds=0.02) as first:
            assert await ids(first) == await ids(second) == []

            async def one_has_checked():
                return max(first.storage.checks, second.storage.checks) > 5

            await until(one_has_checked)
            assert min(first.storage.checks, second.storage.checks) <= 2
        before = second.storage.checks

        async def second_has_checked():
            return second.storage.checks > before + 2

        await until(second_has_checked)


async def test_a_list_waits_for_a_catalogue_that_is_being_built(tmp_path, path):
    class SlowStorage(CountingStorage):
        go_on = None

        async def read_heads(self, session_ids, size):
            await self.go_on.wait()
            return await super().read_heads(session_ids, size)

    folder = tmp_path / "sessions"
    async with opened(tmp_path, None) as manager:
        await manager.create("m", session_id="pattern")
    content = (folder / "pattern.json").read_bytes()
    for number in range(1000):
        (folder / f"s{number}.json").write_bytes(content)
    storage = SlowStorage(folder)
    storage.go_on = anyio.Event()
    manager = SessionManager(storage, catalogue_path=path)
    lists = [asyncio.ensure_future(manager.list(limit=2000)) for _ in range(3)]
    await anyio.sleep(0.05)
    assert not any(each.done() for each in lists)
    await manager.create("m", session_id="new")
    lists[0].cancel()
    await anyio.sleep(0.01)
    storage.go_on.set()
    with anyio.fail_after(30):
        for each in lists[1:]:
            assert len((await each).entries) == 1002
    await manager.aclose()


def delete(path):
    path.unlink()


def garbage(path):
    path.write_bytes(b"no database" * 1000)


def drop(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE sessions")


@pytest.mark.parametrize("spoil", [delete, garbage, drop])
@pytest.mark.parametrize("watch", [True, False])
async def test_a_catalogue_that_is_lost_while_it_is_used_is_made_anew(tmp_path, path, spoil, watch):
    async with opened(tmp_path, path, watch=watch) as manager:
        for number in range(50):
            await manager.create("m", session_id=f"s{number}")
        expected = await ids(manager)
        spoil(path)
        assert await ids(manager) == expected
        spoil(path)
        await manager.create("m", session_id="new")
        assert await ids(manager) == ["new", *expected]
        assert path.exists()


async def test_where_the_file_cannot_be_made_lists_come_from_memory(tmp_path, path):
    path.parent.write_text("a file where the folder should be")
    async with opened(tmp_path, path) as manager:
        for number in range(3):
            await manager.create("m", session_id=f"s{number}")
            assert (await ids(manager))[0] == f"s{number}"
        assert path.parent.is_file()


async def test_a_locked_file_holds_up_no_conversation(tmp_path, path):
    async with opened(tmp_path, path, watch=True) as manager:
        await manager.create("m", session_id="one")
        assert await ids(manager) == ["one"]
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.fail_after(30):  # each would wait five seconds for the lock
                for number in range(20):
                    async with manager.edit("one") as session:
                        session.append(UserMessage(content=str(number)))
            other.execute("ROLLBACK")
        assert (await manager.list()).entries[0]["message_count"] == 20


async def test_a_disk_that_is_full_holds_up_no_conversation(tmp_path, path):
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        assert await ids(manager) == ["one"]
        connection = manager.catalogue.writer.database.connection()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(30):
            await manager.create("m", session_id=f"s{number}", labels={"title": "long " * 500})
        assert len(await ids(manager)) == 31


WRITES_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager

async def main(folder):
    manager = SessionManager(
        sessions_dir=folder / "sessions", catalogue_path=folder / "state" / "catalogue.sqlite3"
    )
    manager.catalogue.watch()
    await manager.list()
    for number in range(100_000):
        await manager.create("m", session_id=f"{sys.argv[2]}{number}")
        print(number, flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
async def test_a_killed_process_leaves_a_catalogue_that_can_be_used(tmp_path, path):
    for attempt in range(5):
        command = [sys.executable, "-c", WRITES_FOR_EVER, str(tmp_path), f"r{attempt}n"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
            for _ in range(3 + attempt * 7):
                assert process.stdout.readline()
            process.kill()
        files = sorted(each.stem for each in (tmp_path / "sessions").glob("*.json"))
        async with opened(tmp_path, path, watch=True) as manager:
            assert sorted(await ids(manager)) == files


async def test_filters_and_pages_agree_with_the_whole_list(tmp_path, path):
    async with opened(tmp_path, path) as manager:
        for number in range(40):
            labels = {
                "tags": [
                    tag for tag, every in (("a", 2), ("b", 3), ("c", 20)) if number % every == 0
                ],
                "archived": number % 5 == 0,
            }
            await manager.create("m", session_id=f"s{number:02}", labels=labels)
        whole = (await manager.list()).entries
        for archived in (None, True, False):
            for tags in ((), ("a",), ("a", "b"), ("c", "a"), ("a", "a"), ("none",)):
                wanted = SessionFilter(archived=archived, tags=tags)
                expected = [
                    entry
                    for entry in whole
                    if set(tags) <= set(entry["tags"]) and archived in (None, entry["archived"])
                ]
                assert (await manager.list(session_filter=wanted)).entries == expected
                entries, cursor = [], None
                while True:
                    page = await manager.list(limit=3, cursor=cursor, session_filter=wanted)
                    entries += page.entries
                    if (cursor := page.next_cursor) is None:
                        break
                    assert len(page.entries) == 3
                assert entries == expected


async def test_a_cursor_of_an_enormous_number_is_no_error(tmp_path, path):
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        for number, expected in ((10**30, []), (-(10**30), ["one"])):
            cursor = write_cursor(f"{number}:x")
            assert await ids(manager, cursor=cursor) == expected


async def test_odd_names_of_files_are_problems(tmp_path, path):
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        for name in (b"\xff\xfe.json", b"a b.json", b"line\nbreak.json"):
            (tmp_path / "sessions" / os.fsdecode(name)).write_text("{}")
        for _ in range(2):
            listed = json.loads(await manager.list_json())
            assert len(listed["problems"]) == 3
            assert [each["session_id"] for each in listed["sessions"]] == ["one"]
        manager.catalogue._checked_at = None
        reads = manager.storage.reads
        assert len((await manager.list()).problems) == 3
        assert manager.storage.reads == reads


async def test_a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_list(tmp_path, path):
    (tmp_path / "sessions").write_text("no folder")
    async with opened(tmp_path, path) as manager:
        with pytest.raises(StorageError):
            await manager.list()


async def test_who_never_lists_has_no_file(tmp_path, path):
    async with opened(tmp_path, path, watch=True) as manager:
        await manager.create("m", session_id="one")
        await anyio.sleep(0.05)
    assert not path.parent.exists()


async def test_the_index_of_an_older_server_goes_with_its_texts(tmp_path, path):
    former = path.with_name("search.sqlite3")
    former.parent.mkdir(parents=True, exist_ok=True)
    for tail in ("", "-wal", "-shm"):
        former.with_name(former.name + tail).write_bytes(b"text of a deleted session")
    async with opened(tmp_path, path) as sessions:
        await sessions.create("m")
        await sessions.list()
    assert list(former.parent.glob("search.sqlite3*")) == []


OPENS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE texts (text)")
print("open", flush=True)
sys.stdin.read()
"""


async def test_catalogues_of_other_versions_go_when_no_process_uses_them(tmp_path, path):
    path.parent.mkdir(parents=True)
    left, used, foreign = (
        path.with_name(name) for name in ("catalogue-1.sqlite3", "catalogue-2.sqlite3", "a.sqlite3")
    )
    left.write_bytes(b"text of a deleted session")
    foreign.write_bytes(b"of another program")
    pipe = asyncio.subprocess.PIPE
    arguments = ("-c", OPENS, str(used))
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=pipe, stdout=pipe
    )
    assert await child.stdout.readline() == b"open\n"

    async def is_gone(name):
        return not [*path.parent.glob(f"{name}*")]

    async with opened(tmp_path, path, watch=True, sweep_seconds=0.01) as sessions:
        await sessions.create("m", session_id="one")
        assert await ids(sessions) == ["one"]
        await until(partial(is_gone, "catalogue-1"))
        assert used.exists()
        child.kill()
        await child.wait()
        await until(partial(is_gone, "catalogue-2"))
        assert await ids(sessions) == ["one"]
    assert foreign.read_bytes() == b"of another program"


class AuthoritativeStorage(MemoryStorage):
    """As a database: each change is one of the generation."""

    changes_in_place = False

    def __init__(self):
        super().__init__()
        self.checks = self.generations = 0

    async def entries(self):
        self.checks += 1
        return await super().entries()

    async def generation(self):
        self.generations += 1
        return await super().generation()


async def test_the_background_checks_all_sessions_only_after_a_change_where_that_is_known():
    storage = AuthoritativeStorage()
    manager = SessionManager(storage, sweep_seconds=0.01)
    await manager.create("m", session_id="one")
    manager.catalogue.watch()
    assert await ids(manager) == ["one"]

    async def looked_often():
        return storage.generations > before + 10

    before, checks = storage.generations, storage.checks
    await until(looked_often)
    assert storage.checks == checks

    content, _ = await storage.read("one")
    await storage.write("two", [content.replace(b'"one"', b'"two"')])  # by another process

    async def is_listed():
        return await ids(manager) == ["one", "two"] or await ids(manager) == ["two", "one"]

    await until(is_listed)
    await manager.aclose()


async def test_while_another_process_makes_the_file_a_list_waits(tmp_path, path):
    path.parent.mkdir()
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    assert lock.acquire()
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        task = asyncio.ensure_future(ids(manager))
        await anyio.sleep(0.05)
        assert not task.done()
        lock.release()
        with anyio.fail_after(30):
            assert await task == ["one"]


@pytest.mark.usefixtures("in_time")
async def test_the_first_write_of_a_process_is_in_the_list_that_another_has_just_made(
    tmp_path, path
):
    async with (
        opened(tmp_path, path, watch=True) as mine,
        opened(tmp_path, path, watch=True) as yours,
    ):
        await anyio.sleep(0.1)  # both have looked for a catalogue, and there was none
        assert await ids(yours) == []
        await mine.create("m", session_id="one")
        assert await ids(yours) == ["one"]


@pytest.mark.usefixtures("in_time")
async def test_after_a_loss_both_processes_enter_their_changes_again(tmp_path, path):
    async with (
        opened(tmp_path, path, watch=True) as mine,
        opened(tmp_path, path, watch=True) as yours,
    ):
        assert await ids(mine) == await ids(yours) == []
        path.unlink()
        await mine.create("m", session_id="one")
        assert await ids(yours) == await ids(mine) == ["one"]
        await mine.create("m", session_id="two")
        assert await ids(mine) == await ids(yours) == ["two", "one"]


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("tails", [["-wal"], ["-shm"], ["-wal", "-shm"]])
async def test_sqlite_s_log_may_be_deleted_while_processes_use_it(tmp_path, path, tails):
    async with opened(tmp_path, path, watch=True, sweep_seconds=0.1) as mine:
        await mine.create("m", session_id="one")
        assert await ids(mine) == ["one"]
        for tail in tails:
            path.with_name(path.name + tail).unlink()
        async with opened(tmp_path, path, watch=True, sweep_seconds=0.1) as yours:
            await mine.create("m", session_id="two")

            async def both_see(newest):
                first = [(await ids(manager))[0] for manager in (mine, yours)]
                fails = [manager.catalogue.unavailable for manager in (mine, yours)]
                return first == [newest] * 2 and fails == [None] * 2

            await until(partial(both_see, "two"))
            await mine.create("m", session_id="three")
            await until(partial(both_see, "three"))  # one may find out only now, by its sweep
            await yours.create("m", session_id="four")
            await until(partial(both_see, "four"))
            assert await ids(mine) == ["four", "three", "two", "one"]


@pytest.mark.parametrize("made_before", [True, False])
async def test_a_file_that_another_process_deletes_while_it_is_opened_is_made_again(
    tmp_path, path, monkeypatch, made_before
):
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        assert not made_before or await ids(manager) == ["one"]
    connect, is_deleted = sqlite3.connect, False

    def connect_late(*arguments, **options):
        nonlocal is_deleted
        if not is_deleted and path.exists():
            is_deleted = True
            if not made_before:  # deleted just after it is opened, before its tables are made
                connection = connect(*arguments, **options)
                path.unlink()
                return connection
            path.unlink()
        return connect(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", connect_late)
    async with opened(tmp_path, path) as manager:
        assert await ids(manager) == ["one"]
        assert is_deleted
        assert manager.catalogue.unavailable is None
        assert path.exists()


@pytest.mark.parametrize("damage", ["x'FF'", "x'7B'"])  # no text, and no JSON
async def test_a_damaged_line_makes_the_catalogue_anew(tmp_path, path, damage):
    async with opened(tmp_path, path) as manager:
        await manager.create("m", session_id="one")
        assert await ids(manager) == ["one"]
        for _ in range(2):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute(f"UPDATE sessions SET line = {damage}")
            listed = json.loads(await manager.list_json())
            assert [each["session_id"] for each in listed["sessions"]] == ["one"]
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute(f"UPDATE sessions SET line = {damage}")
            assert await ids(manager) == ["one"]


async def test_a_session_that_another_process_makes_during_a_check_is_kept(tmp_path, path):
    async with opened(tmp_path, path) as mine, opened(tmp_path, path, watch=True) as yours:
        assert await ids(mine) == await ids(yours) == []
        await yours.create("m", session_id="last")
        entries = mine.storage.entries

        async def replaced_meanwhile():
            found = await entries()
            await yours.delete("last")
            await yours.create("m", session_id="new")
            return found

        mine.storage.entries = replaced_meanwhile
        await ids(mine)
        assert await ids(yours) == ["new"]


async def test_a_list_that_is_used_again_after_it_was_closed_is_that_of_now():
    manager = SessionManager(MemoryStorage())
    for session_id in ("one", "two"):
        await manager.create("m", session_id=session_id)
        listed = json.loads(await manager.list_json())
        assert [each["session_id"] for each in listed["sessions"]] == [session_id]
        await manager.aclose()
        await manager.delete(session_id)


async def test_when_the_one_that_watches_cannot_use_the_file_another_watches(
    tmp_path, path, monkeypatch
):
    monkeypatch.setattr("mochi_server.core.sqlite.BUSY_SECONDS", 0.2)
    async with (
        opened(tmp_path, path, watch=True, sweep_seconds=0.05) as mine,
        opened(tmp_path, path, watch=True, sweep_seconds=0.05) as yours,
    ):
        for session_id in ("one", "two"):
            await mine.create("m", session_id=session_id)
        assert await ids(mine) == await ids(yours) == ["two", "one"]
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            (mine.storage.folder / "one.json").unlink()

            async def is_refused():
                return mine.catalogue.unavailable or yours.catalogue.unavailable

            await until(is_refused)
        (mine.storage.folder / "two.json").unlink()

        async def both_see_it():
            return await ids(mine) == await ids(yours) == []

        with anyio.fail_after(30):
            await until(both_see_it)


async def test_lists_at_once_survive_a_file_that_cannot_be_used_any_more(tmp_path, path):
    async with opened(tmp_path, path, watch=True) as manager:
        await manager.create("m", session_id="one")
        assert await ids(manager) == ["one"]

        def refuse_in_file(connection):
            if not manager.catalogue.unavailable:
                raise sqlite3.OperationalError("database is locked")

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(manager.catalogue.read, refuse_in_file)
        assert await ids(manager) == ["one"]
