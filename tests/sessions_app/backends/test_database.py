"""Sessions in a database: what leases, other processes and an absent database do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from django.db import connections as django_connections
from django.db.models.functions import Now
from model_bakery import baker
from pytest_django import DjangoDbBlocker

from mochi_server.core import outages
from mochi_server.core.aio import in_thread
from mochi_server.errors import SessionBusy, StorageError
from mochi_server.sessions import SessionManager
from mochi_server.sessions.storage.base import SessionChanged
from mochi_server.sessions.storage.leased import Lease
from sessions_app.backends import connections
from sessions_app.backends.database import DatabaseStorage
from sessions_app.models import SessionChange, StoredSession
from tests.support.databases import database_alias
from tests.support.outages import change_during_restart
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.waiting import until

pytestmark = needs_postgresql


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server() -> AsyncIterator[PostgreSQL]:
    """A server that no test stops."""
    async with running_postgresql() as server:
        yield server


@pytest.fixture
async def alias(
    shared_server: PostgreSQL, django_db_blocker: DjangoDbBlocker
) -> AsyncIterator[str]:
    with database_alias(shared_server.url, django_db_blocker) as alias:
        yield alias


MakeStorage = Callable[..., DatabaseStorage]


@pytest.fixture
async def make_storage(alias: str, request: pytest.FixtureRequest) -> AsyncIterator[MakeStorage]:
    """Storages of one collection, as so many processes have them."""
    async with AsyncExitStack() as stack:

        def make(**options: object) -> DatabaseStorage:
            storage = DatabaseStorage(alias=alias, name=request.node.name[:32], **options)
            stack.push_async_callback(storage.aclose)
            return storage

        yield make


async def end_lease(storage: DatabaseStorage, lease: str) -> None:
    """Let a lease of the session "one" be over, as if its process had stood still."""
    over = {f"{lease}_until": Now() - timedelta(seconds=1)}
    await storage._threads.run(lambda: storage._row("one").update(**over))


async def until_row(storage: DatabaseStorage, **condition: object) -> None:
    """Wait until this holds for the row of the session "one"."""
    await until(lambda: storage._threads.run(storage._row("one").filter(**condition).exists))


async def rows(storage: DatabaseStorage) -> list[StoredSession]:
    return await storage._threads.run(lambda: list(storage._rows()))


async def test_collections_do_not_see_each_other(alias: str, make_storage: MakeStorage):
    people, agents = make_storage(), DatabaseStorage(alias=alias, name="agent_chats")
    await people.write("one", [b"of people"])
    await agents.write("one", [b"of agents"])
    assert (await people.read("one"))[0] == b"of people"
    assert [entry.session_id for entry in await agents.entries()] == ["one"]
    await agents.delete("one")
    assert (await people.read("one"))[0] == b"of people"
    await agents.aclose()


async def test_who_was_taken_for_dead_cannot_write_any_more(make_storage: MakeStorage):
    late, next_one = make_storage(), make_storage()
    await late.write("one", [b"first"])
    async with late.claim("one"):
        await end_lease(late, "claim")
        async with next_one.claim("one"):
            version = await next_one.write("one", [b"second"])
            for write in (late.write("one", [b"late"]), late.replace("one", version, [b"late"])):
                with pytest.raises(StorageError, match="taken it over"):
                    await write
        with pytest.raises(StorageError, match="taken it over"):
            await late.write("one", [b"too late"])
        with pytest.raises(StorageError, match="taken it over"):
            await late.delete("one")
        assert (await next_one.read("one"))[0] == b"second"
    async with late.claim("one"):  # it may take it again, as any other
        await late.write("one", [b"third"])


async def test_claims_are_renewed_and_given_back(make_storage: MakeStorage):
    storage = make_storage(lease_seconds=3)
    async with storage.claim("one"):
        [row] = await rows(storage)
        await until_row(storage, claim_until__gt=row.claim_until)
        await end_lease(storage, "claim")  # and nobody has taken it
        await until_row(storage, claim_until__gt=Now())
    assert await rows(storage) == []


async def test_an_edit_that_took_longer_than_its_lock_overwrites_nothing(
    make_storage: MakeStorage,
):
    slow, quick = make_storage(), make_storage()
    await slow.write("one", [b"first"])
    async with slow.lock("one") as held:
        await end_lease(slow, "lock")
        async with quick.lock("one") as other:
            await other.write([b"second"])
        with pytest.raises(SessionChanged):
            await held.write([b"slow"])
    assert (await quick.read("one"))[0] == b"second"


async def test_a_deleted_session_leaves_no_row_and_is_busy_until_its_claim_ends(
    make_storage: MakeStorage,
):
    storage, other = make_storage(), make_storage()
    await storage.write("one", [b"x"])
    async with storage.claim("one"), storage.lock("one"):
        await storage.delete("one")
        with pytest.raises(SessionBusy):
            async with other.claim("one"):
                pass
        assert await storage.entries() == []
    assert await rows(storage) == []


FREE: dict[Lease, str] = {"claim": "", "lock": ""}


async def test_a_write_whose_answer_was_lost_is_done_once(make_storage: MakeStorage):
    """A repetition finds what the first attempt has committed."""
    storage = make_storage()
    seen = await storage.write("one", [b"first"])
    for expected in ("any", seen[0]):
        attempt = lambda: storage._write_row("one", b"second", 4711, expected, FREE)  # noqa: B023, E731
        await storage._threads.run(attempt)
        await storage._threads.run(attempt)
        assert await storage.read("one") == (b"second", (4711,))


async def test_processes_that_start_together_make_the_tables_once(
    shared_server: PostgreSQL, django_db_blocker: DjangoDbBlocker
):
    with database_alias(shared_server.url, django_db_blocker) as alias:
        async with AsyncExitStack() as stack:
            storages = [DatabaseStorage(alias=alias) for _ in range(6)]
            for each in storages:
                stack.push_async_callback(each.aclose)
            await storages[0]._threads.run(lambda: drop_tables(alias))
            for each in storages:
                each._threads._is_prepared = False
            written = [each.write(f"s{n}", [b"x"]) for n, each in enumerate(storages)]
            await asyncio.gather(*written)
            assert len(await storages[0].entries()) == 6


def drop_tables(alias: str) -> None:
    with django_connections[alias].cursor() as cursor:
        cursor.execute("DROP TABLE sessions_app_storedsession, sessions_app_sessionchange")
        cursor.execute("DELETE FROM django_migrations")


async def test_rows_of_other_programs_are_listed_as_they_are(make_storage: MakeStorage):
    storage = make_storage()
    await storage.generation()  # makes the tables

    def make_rows() -> None:
        options = {"_using": storage._alias, "collection": storage.name}
        baker.make(StoredSession, session_id="leased", claim="x", claim_until=Now(), **options)
        baker.make(StoredSession, session_id="kept", version=7, modified=Now(), **options)
        baker.make(SessionChange, slot=3, version=7, **options)

    await storage._threads.run(make_rows)
    [entry] = await storage.entries()
    assert (entry.session_id, entry.version) == ("kept", (7,))
    assert await storage.generation() == ((3, 7),)


async def test_the_connections_of_a_process_are_bounded_and_closed(
    shared_server: PostgreSQL, make_storage: MakeStorage
):
    storage = make_storage()
    await storage.write("one", [b"x"])
    await asyncio.gather(*(storage.read("one") for _ in range(100)))

    def count() -> int:
        with django_connections[storage._alias].cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mochi-server'"
            )
            return cursor.fetchone()[0]

    assert await storage._threads.run(count) <= 1 + 8
    await storage.aclose()
    other = make_storage()
    await until(lambda: other._threads.run(count), lambda answer: answer <= 1)


# A database that is away; each of these has a server of its own


@pytest.fixture
async def server() -> AsyncIterator[PostgreSQL]:
    async with running_postgresql() as server:
        yield server


@pytest.fixture
async def storage(
    server: PostgreSQL, django_db_blocker: DjangoDbBlocker
) -> AsyncIterator[DatabaseStorage]:
    with database_alias(server.url, django_db_blocker) as alias:
        storage = DatabaseStorage(alias=alias)
        yield storage
        await storage.aclose()


async def test_a_restart_of_the_database_is_not_noticed(
    server: PostgreSQL, storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
):
    await change_during_restart(SessionManager(storage), server, monkeypatch)


async def test_an_absent_database_is_a_storage_error_and_the_sessions_are_there_when_it_is_back(
    server: PostgreSQL, storage: DatabaseStorage, caplog: pytest.LogCaptureFixture
):
    sessions = SessionManager(storage)
    kept = await sessions.create("m", system_prompt="Be brief." * 1000)
    async with storage.claim(kept.session_id):
        await server.stop()
        for _ in range(2):
            with pytest.raises(StorageError, match=r"cannot be used: .*refused"):
                await sessions.get(kept.session_id)
    await server.start()
    found = await sessions.get(kept.session_id)
    assert found.stored_messages() == kept.stored_messages()
    [line] = (await sessions.list()).entries
    assert line["session_id"] == kept.session_id
    await sessions.aclose()
    words = [record.message for record in caplog.records]
    assert sum("cannot be used" in word for word in words if "claims" not in word) == 1
    assert words[-1] == "The database of the sessions answers again."


async def test_the_first_request_after_an_outage_succeeds_on_whichever_connection(
    server: PostgreSQL, storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
):
    """Each connection was broken, and only those that were used meanwhile are known to be."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.1)
    await storage.write("one", [b"x"])
    together = threading.Barrier(connections.MAX_CONNECTIONS)
    waits = [storage._threads.run(together.wait) for _ in range(connections.MAX_CONNECTIONS)]
    with anyio.fail_after(60):
        await asyncio.gather(*waits)
    await server.stop()
    with pytest.raises(StorageError):
        await storage.read("one")
    await server.start()
    for _ in range(connections.MAX_CONNECTIONS):
        assert (await storage.read("one"))[0] == b"x"


async def test_a_database_that_hangs_is_given_up_and_leaves_no_thread_behind(
    server: PostgreSQL, storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
):
    await storage.write("one", [b"x"])
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    server.hang()
    with pytest.raises(StorageError, match="has not answered"):
        await storage.read("one")
    server.resume()
    monkeypatch.undo()
    assert (await storage.read("one"))[0] == b"x"
    server.hang()
    with anyio.move_on_after(0.3) as cancelled:
        await storage.read("one")
    assert cancelled.cancelled_caught
    with anyio.fail_after(30):
        await storage.aclose()  # waits for the threads
    server.resume()
    assert (await storage.read("one"))[0] == b"x"


async def test_work_that_was_given_up_while_it_connected_is_broken_too(
    server: PostgreSQL, storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
):
    def sleep_long() -> None:
        with django_connections[storage._alias].cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    await storage.write("one", [b"x"])
    await storage.aclose()
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    server.hang()
    with pytest.raises(StorageError, match="has not answered"):
        await storage._threads.run(sleep_long)
    server.resume()
    monkeypatch.undo()
    with anyio.fail_after(30):
        await storage.aclose()
    assert (await storage.read("one"))[0] == b"x"


async def test_threads_connect_to_a_hanging_database_all_at_once(
    server: PostgreSQL, storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
):
    """Else each would wait for those before it, and so would a server that stops."""

    async def read() -> None:
        with pytest.raises(StorageError, match="cannot be used"):
            await storage.read("one")

    await storage.write("one", [b"x"])
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    server.hang()
    await read()
    await storage.aclose()
    with anyio.fail_after(15):
        await asyncio.gather(*(read() for _ in range(connections.MAX_CONNECTIONS)))
        await storage.aclose()
    server.resume()
    assert (await storage.read("one"))[0] == b"x"


FULL_DISK = """
CREATE FUNCTION refuse() RETURNS trigger AS $$
BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END
$$ LANGUAGE plpgsql;
CREATE TRIGGER refuse BEFORE UPDATE ON sessions_app_storedsession EXECUTE FUNCTION refuse();
"""


async def test_a_write_that_a_full_disk_refuses_ends_while_reads_succeed(
    storage: DatabaseStorage,
):
    def fill() -> None:
        with django_connections[storage._alias].cursor() as cursor:
            cursor.execute(FULL_DISK)

    await storage.write("one", [b"x"])
    await storage._threads.run(fill)
    writing = asyncio.ensure_future(storage.write("one", [b"y"]))
    with anyio.fail_after(30):
        while not writing.done():
            assert (await storage.read("one"))[0] == b"x"
    with pytest.raises(StorageError, match="No space left"):
        await writing


async def test_a_database_that_was_emptied_gets_its_tables_again(
    server: PostgreSQL, storage: DatabaseStorage
):
    await storage.write("one", [b"x"])
    await storage._threads.run(lambda: drop_tables(storage._alias))
    with pytest.raises(StorageError):
        await storage.read("one")
    assert await storage.entries() == []


async def test_a_file_of_sqlite_is_shared_by_two_processes(
    tmp_path: Path, django_db_blocker: DjangoDbBlocker
):
    with database_alias(f"sqlite:///{tmp_path}/s.sqlite3", django_db_blocker) as alias:
        here, there = DatabaseStorage(alias=alias), DatabaseStorage(alias=alias)
        await asyncio.gather(
            *(here.write(f"h{n}", [b"x" * 9000]) for n in range(20)),
            *(there.write(f"t{n}", [b"x" * 9000]) for n in range(20)),
        )
        assert len(await here.entries()) == 40
        assert await in_thread((tmp_path / "s.sqlite3").exists)
        await here.aclose()
        await there.aclose()
