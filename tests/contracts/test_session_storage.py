"""What every session storage promises."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import orjson
import pytest
import pytest_asyncio
from pytest_django import DjangoDbBlocker

from mochi_server.errors import SessionBusy, SessionExists, SessionNotFound
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import JSONFileStorage, MemoryStorage, SessionManager, SessionStorage
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.storage.base import SessionChanged
from mochi_server.sessions.storage.redis import RedisStorage
from sessions_app.backends.database import DatabaseStorage
from tests.support.databases import database_alias
from tests.support.postgresql import PROGRAMS, needs_postgresql, running_postgresql
from tests.support.redis import needs_redis

HOSTILE = [
    "",
    ".",
    "..",
    "../up",
    "a/b",
    "a\\b",
    "a.json",
    "a\x00b",
    "a\n",
    "x" * 65,
    "é",
    "a b",
    "import",
    "stream",
    "%2e%2e",
    "-" * 64 + ".",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database_urls(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, str]]:
    urls = {"sqlite": f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/sessions.sqlite3"}
    if PROGRAMS is None:
        yield urls
        return
    async with running_postgresql() as server:
        yield {**urls, "postgresql": server.url}


@pytest.fixture(
    params=[
        "json files",
        "memory",
        pytest.param("redis", marks=needs_redis),
        pytest.param("redis, packed", marks=needs_redis),
        "sqlite",
        pytest.param("postgresql", marks=needs_postgresql),
    ]
)
async def processes(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    redis_url: str,
    database_urls: dict[str, str],
    django_db_blocker: DjangoDbBlocker,
) -> AsyncIterator[tuple[SessionStorage, SessionStorage]]:
    """The same sessions, as two processes have them; those in memory have only one."""
    with ExitStack() as stack:
        if request.param in {"sqlite", "postgresql"}:
            url = database_urls[request.param]
            alias = stack.enter_context(database_alias(url, django_db_blocker))
            name = f"sessions-{secrets.token_hex(4)}"
            make: Callable[[], SessionStorage] = partial(DatabaseStorage, alias=alias, name=name)
        elif request.param == "memory":
            make = itertools.repeat(MemoryStorage()).__next__
        elif request.param == "json files":
            make = partial(JSONFileStorage, tmp_path / "not" / "there" / "yet")
        else:
            make = partial(RedisStorage, redis_url, compress=request.param == "redis, packed")
        both = make(), make()
        yield both
        for each in both:
            await each.aclose()


@pytest.fixture
def storage(processes: tuple[SessionStorage, SessionStorage]) -> SessionStorage:
    return processes[0]


async def test_what_was_written_is_read_back(storage: SessionStorage):
    version = await storage.write("one", [b"first ", b"\xff\n\x00second"])

    assert await storage.read("one") == (b"first \xff\n\x00second", version)
    assert await storage.version("one") == version
    assert await storage.read_heads(["one"], 5) == [b"first"]
    assert await storage.read_heads(["one"], 500) == [b"first \xff\n\x00second"]


async def test_a_second_write_replaces_the_first_and_has_another_version(storage: SessionStorage):
    first = await storage.write("one", [b"aaaa"])
    second = await storage.write("one", [b"bbbb"])

    assert first != second
    assert await storage.read("one") == (b"bbbb", second)


async def test_a_session_that_another_process_has_locked_is_not_replaced(
    processes: tuple[SessionStorage, SessionStorage],
):
    here, there = processes
    if here is there:
        pytest.skip("one process only, whose tasks wait for the lock")
    version = await here.write("one", [b"old"])
    async with here.lock("one") as hold:
        with pytest.raises(SessionChanged):
            await there.replace("one", version, [b"late"])
        await hold.write([b"new"])
    assert (await there.read("one"))[0] == b"new"


async def test_changes_of_several_processes_at_the_same_time_are_all_made(
    processes: tuple[SessionStorage, SessionStorage],
):
    managers = [SessionManager(storage) for storage in processes]
    session_id = (await managers[0].create("m")).session_id

    async def change(manager: SessionManager, number: int) -> None:
        def add(session: ChatSession) -> None:
            session.append(UserMessage(content=str(number)))

        if number % 3:
            await manager.update(session_id, add)
            return
        async with manager.edit(session_id) as session:
            add(session)

    with anyio.fail_after(60):
        await asyncio.gather(*(change(managers[n % 2], n) for n in range(24)))
    messages = (await managers[1].get(session_id)).messages
    assert sorted(int(message.text) for message in messages) == list(range(24))


async def test_the_tags_of_all_sessions_are_counted(
    processes: tuple[SessionStorage, SessionStorage],
):
    here, there = (SessionManager(storage) for storage in processes)
    for tags in (["b"], ["a", "b"]):
        await here.create("m", labels={"tags": tags})

    counted = [{"tag": "b", "session_count": 2}, {"tag": "a", "session_count": 1}]
    assert orjson.loads(await there.tags_json()) == {"tags": counted}


async def test_create_makes_a_session_once(storage: SessionStorage):
    await storage.create("one", [b"mine"])

    with pytest.raises(SessionExists):
        await storage.create("one", [b"yours"])
    assert (await storage.read("one"))[0] == b"mine"


async def test_of_many_creates_of_one_id_a_single_one_wins(storage: SessionStorage):
    outcomes = await asyncio.gather(
        *(storage.create("one", [str(number).encode()]) for number in range(10)),
        return_exceptions=True,
    )

    refused = [outcome for outcome in outcomes if isinstance(outcome, SessionExists)]
    assert len(refused) == 9
    winner = next(number for number, out in enumerate(outcomes) if isinstance(out, tuple))
    assert (await storage.read("one"))[0] == str(winner).encode()


async def test_a_deleted_session_is_gone(storage: SessionStorage):
    await storage.write("one", [b"x"])
    await storage.delete("one")

    assert await storage.entries() == []
    for work in (storage.read, storage.version, storage.delete):
        with pytest.raises(SessionNotFound):
            await work("one")
    [missing] = await storage.read_heads(["one"], 10)
    assert isinstance(missing, SessionNotFound)


async def test_entries_name_every_session_with_version_and_size(storage: SessionStorage):
    assert await storage.entries() == []
    versions = {name: await storage.write(name, [b"x" * 500]) for name in ("a", "B-2", "_")}

    entries = await storage.entries()

    assert {entry.session_id: entry.version for entry in entries} == versions
    assert all(entry.problem is None and entry.modified > 0 for entry in entries)
    assert all(0 < entry.size <= 500 for entry in entries)


async def test_heads_of_many_have_an_error_in_the_place_of_a_missing_one(storage: SessionStorage):
    await storage.write("a", [b"12345"])
    await storage.write("c", [b"abc"])

    first, missing, last = await storage.read_heads(["a", "b", "c"], 4)

    assert (first, last) == (b"1234", b"abc")
    assert isinstance(missing, SessionNotFound)


async def test_the_generation_moves_with_every_change(storage: SessionStorage):
    await storage.write("one", [b"x"])
    seen = [await storage.generation()]
    assert await storage.generation() == seen[0]

    for change in (storage.write("one", [b"y"]), storage.write("two", [b""])):
        await anyio.sleep(0.02)  # the clock of a file system ticks every few milliseconds
        await change
        seen.append(await storage.generation())
    await anyio.sleep(0.02)
    await storage.delete("one")
    seen.append(await storage.generation())

    assert len(set(seen)) == 4


@pytest.mark.parametrize("session_id", HOSTILE)
async def test_a_malformed_id_touches_nothing(
    storage: SessionStorage, session_id: str, tmp_path: Path
):
    for work in (storage.read, storage.version, storage.delete):
        with pytest.raises(SessionNotFound):
            await work(session_id)
    for write in (storage.write, storage.create):
        with pytest.raises(SessionNotFound):
            await write(session_id, [b"x"])
    for hold in (storage.lock, storage.claim):
        with pytest.raises(SessionNotFound):
            async with hold(session_id):
                pass
    with pytest.raises(SessionNotFound):
        await storage.read_heads([session_id], 1)
    assert list(tmp_path.rglob("*")) == []


async def test_a_lock_lets_one_in_after_the_other(storage: SessionStorage):
    inside: list[int] = []
    order: list[int] = []

    async def edit(number: int) -> None:
        async with storage.lock("one"):
            inside.append(number)
            assert inside == [number]
            await anyio.lowlevel.checkpoint()
            order.append(number)
            inside.remove(number)

    with anyio.fail_after(30):
        await asyncio.gather(*(edit(number) for number in range(20)))
    assert order == list(range(20))


async def test_locks_of_two_sessions_do_not_meet(storage: SessionStorage):
    with anyio.fail_after(30):
        async with storage.lock("one"), storage.lock("two"):
            pass


async def test_who_stops_waiting_for_a_lock_leaves_it_usable(storage: SessionStorage):
    async with storage.lock("one"):
        with anyio.move_on_after(0.02) as waiting:
            async with storage.lock("one"):
                pytest.fail("two in one lock")
        assert waiting.cancelled_caught
    with anyio.fail_after(30):
        async with storage.lock("one"):
            pass


async def test_a_second_claim_is_refused_at_once(storage: SessionStorage):
    async with storage.claim("one"):
        with pytest.raises(SessionBusy):
            async with storage.claim("one"):
                pass
        with pytest.raises(SessionBusy):  # the refusal took nothing away
            async with storage.claim("one"):
                pass
        async with storage.claim("two"):
            pass
    async with storage.claim("one"):
        pass


async def test_a_claim_does_not_hinder_a_lock(storage: SessionStorage):
    with anyio.fail_after(30):
        async with storage.claim("one"), storage.lock("one"):
            await storage.write("one", [b"x"])


async def test_a_claim_and_a_lock_come_back_after_an_error(storage: SessionStorage):
    with pytest.raises(ZeroDivisionError):
        async with storage.claim("one"), storage.lock("one"):
            raise ZeroDivisionError
    with anyio.fail_after(30):
        async with storage.claim("one"), storage.lock("one"):
            pass


def test_a_storage_serves_one_event_loop_after_another(tmp_path: Path):
    async def contend(storage: SessionStorage) -> None:
        async def edit() -> None:
            async with storage.lock("one"):
                await storage.write("one", [b"x"])

        await asyncio.gather(*(edit() for _ in range(5)))
        await storage.aclose()

    for storage in (JSONFileStorage(tmp_path), MemoryStorage()):
        for _ in range(3):
            asyncio.run(contend(storage))


async def test_replace_writes_only_over_what_it_knows(storage: SessionStorage):
    seen = await storage.write("one", [b"old"])
    newer = await storage.replace("one", seen, [b"new"])
    assert await storage.read("one") == (b"new", newer)
    with pytest.raises(SessionChanged):
        await storage.replace("one", seen, [b"late"])
    with pytest.raises(SessionChanged):
        await storage.replace("two", seen, [b"never there"])
    assert await storage.read("one") == (b"new", newer)
    with pytest.raises(SessionNotFound):
        await storage.read("two")
    with anyio.fail_after(30):
        async with storage.lock("one"):
            pass
