"""Sessions in Redis: what leases, other processes and an absent Redis do."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import pytest

from mochi_server.core import outages
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import SessionNotFound, StorageError
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager
from mochi_server.sessions.catalogue.search import SessionSearch
from mochi_server.sessions.storage.redis import RedisStorage
from tests.support.lines import line_to
from tests.support.outages import change_during_restart
from tests.support.redis import PERSISTENT, needs_redis, running_redis
from tests.support.waiting import until

pytestmark = needs_redis

CLAIM = "mochi:sessions:claim:one"
KEYS = ("mochi:sessions:content:one", "mochi:sessions:state:one")
"""What is kept of a session, until it expires."""
DAY = 86_400


@pytest.fixture
async def redis(tmp_path):
    async with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
async def storages(redis):
    """Two processes, as Redis sees them."""
    both = [RedisStorage(redis.url), RedisStorage(redis.url)]
    yield both
    for each in both:
        await each.aclose()


async def test_whose_claim_redis_has_forgotten_cannot_write(redis, storages):
    """Redis goes on with a copy that is behind; the session may be too."""
    here, there = storages
    await here.write("one", [b"first"])
    async with here.claim("one"):
        await redis.command(f"DEL {CLAIM}")
        await redis.command("HDEL mochi:sessions:state:one claim")
        for write in (here.write("one", [b"second"]), here.delete("one")):
            with pytest.raises(StorageError, match="forgotten the claim"):
                await write
        assert await here._renew() == ["one"]
        async with there.claim("one"):
            await there.write("one", [b"third"])
    assert (await here.read("one"))[0] == b"third"


async def test_claims_are_renewed_and_given_back(redis):
    storage = RedisStorage(redis.url, lease_seconds=3)
    async with storage.claim("one"):
        await redis.until_renewed(CLAIM, 3)
        await redis.command(f"DEL {CLAIM}")  # Redis forgets it, and nobody has taken it
        await until(redis.keys, lambda answer: CLAIM in answer)
    assert await redis.keys() == []
    await storage.aclose()


async def test_versions_do_not_come_again_after_redis_has_forgotten_all(redis):
    storage = RedisStorage(redis.url)
    seen = {await storage.write("one", [b"x"]) for _ in range(3)}
    await redis.command("FLUSHALL")
    seen |= {await storage.write("one", [b"x"]) for _ in range(3)}
    assert len(seen) == 6
    await storage.aclose()


async def test_versions_do_not_come_again_after_redis_has_gone_back_in_time(redis):
    """Else a process would take what it remembers for what is there, and write over it."""
    storage = RedisStorage(redis.url)
    await storage.write("one", [b"x"])
    known = (await redis.command("GET mochi:sessions:changes")).split(b"\r\n")[1].decode()
    seen = await storage.write("one", [b"lost"])
    await redis.command(f"SET mochi:sessions:changes {known}")  # as in a replica that was behind
    assert await storage.write("one", [b"other"]) != seen
    await storage.aclose()


async def until_gone(storage: RedisStorage, session_id: str) -> None:
    with anyio.fail_after(30), suppress(SessionNotFound):
        await until(lambda: storage.version(session_id), lambda answer: not answer)


async def expire(redis) -> None:
    """Let the time of a session be over."""
    for key in KEYS:
        assert await redis.command(f"PEXPIRE {key} 1") == b":1\r\n"
    await redis.command("ZADD mochi:sessions:ends 0 one")


async def test_an_expired_session_is_gone_and_its_id_is_free(redis):
    storage = RedisStorage(redis.url, retention_days=1)
    sessions = SessionManager(storage)
    kept = await sessions.create("m", session_id="one", labels={"title": "Boats"})
    search, seen = SessionSearch(sessions.catalogue), await storage.generation()
    await expire(redis)
    await until_gone(storage, "one")
    assert (await sessions.list()).entries == []
    assert (await search.search("boats", wait_seconds=None)).sessions == []
    assert await storage.generation() != seen
    assert await storage.entries() == []
    for work in (sessions.get, storage.read, storage.delete, sessions.delete):
        with pytest.raises(SessionNotFound):
            await work("one")
    assert await redis.keys() == ["mochi:sessions:changes"]
    assert (await sessions.create("m", session_id=kept.session_id)).session_id == "one"
    await sessions.aclose()


async def milliseconds_left(redis) -> list[int]:
    """Until a session expires: of its content, and of its state."""
    return [int((await redis.command(f"PTTL {key}")).strip(b":\r\n")) for key in KEYS]


async def test_time_until_a_session_expires_is_counted_from_its_last_change(redis):
    storage, other = RedisStorage(redis.url, retention_days=1), RedisStorage(redis.url)
    await storage.write("one", [b"x"])
    for key in KEYS:  # nearly a day later
        await redis.command(f"PEXPIRE {key} 60000")
    assert max(await milliseconds_left(redis)) <= 60_000
    await storage.write("one", [b"y"])
    left = await milliseconds_left(redis)
    assert DAY * 1000 >= max(left) >= min(left) > DAY * 1000 - 60_000
    await other.write("one", [b"z"])
    assert await milliseconds_left(redis) == [-1, -1]
    assert (await storage.read("one"))[0] == b"z"
    await storage.aclose()
    await other.aclose()


async def test_a_session_does_not_expire_under_a_turn(redis):
    storage = RedisStorage(redis.url, retention_days=300 / DAY, lease_seconds=1000)
    version = await storage.write("one", [b"x"])
    async with storage.claim("one"):
        assert min(await milliseconds_left(redis)) > 500_000
        for key in KEYS:  # nearly a lease later
            await redis.command(f"PEXPIRE {key} 100000")
        await redis.command("ZADD mochi:sessions:ends 0 one")
        assert await storage._renew() == []
        assert min(await milliseconds_left(redis)) > 500_000
        assert [entry.session_id for entry in await storage.entries()] == ["one"]
        assert await storage.read("one") == (b"x", version)
    await expire(redis)
    await until_gone(storage, "one")
    assert await storage.entries() == []
    await storage.aclose()


async def test_a_restart_of_redis_is_not_noticed(tmp_path, monkeypatch):
    async with running_redis(tmp_path, *PERSISTENT) as redis:
        await change_during_restart(SessionManager(RedisStorage(redis.url)), redis, monkeypatch)


async def test_a_redis_that_stays_away_is_waited_for_once(redis, caplog):
    storage = RedisStorage(redis.url)
    await redis.stop()
    with anyio.fail_after(30):
        for _ in range(20):
            with pytest.raises(StorageError, match="cannot be used"):
                await storage.read("one")
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "The Redis of the sessions cannot be used"
    ]
    await redis.start()
    with pytest.raises(SessionNotFound):
        await storage.read("one")
    assert caplog.records[-1].message == "The Redis of the sessions answers again."
    await storage.aclose()


async def test_an_absent_redis_is_a_storage_error_and_the_sessions_are_there_when_it_is_back(redis):
    sessions = SessionManager(RedisStorage(redis.url, compress=True))
    kept = await sessions.create("m", system_prompt="Be brief." * 1000)
    redis.hang()
    reading = asyncio.ensure_future(sessions.get(kept.session_id))
    with pytest.raises(StorageError, match="cannot be used"):
        await reading
    redis.resume()
    found = await sessions.get(kept.session_id)
    assert found.stored_messages() == kept.stored_messages()
    [line] = (await sessions.list()).entries
    assert line["session_id"] == kept.session_id
    await sessions.aclose()


async def test_claims_that_a_hanging_redis_does_not_take_back_are_given_up_together(redis):
    """Else the last of many turns would wait for the others, and a server that stops for it."""
    storage = RedisStorage(redis.url)

    async def hold(session_id: str) -> None:
        async with storage.claim(session_id):
            claimed.append(session_id)
            await hangs.wait()

    claimed: list[str] = []
    hangs = asyncio.Event()
    turns = [asyncio.ensure_future(hold(f"s{number}")) for number in range(5)]
    await until(lambda: len(claimed) == 5)
    redis.hang()
    hangs.set()
    with anyio.fail_after(15):
        await asyncio.gather(*turns)
    await storage.aclose()


async def test_a_change_that_is_cancelled_while_redis_is_away_leaves_one_line_of_log(redis, caplog):
    sessions = SessionManager(RedisStorage(redis.url))
    kept = await sessions.create("m")
    await redis.stop()
    work = sessions.update(kept.session_id, lambda session: session.metadata.label(title="T"))
    change = asyncio.ensure_future(run_to_completion(work))
    await until(lambda: "cannot be used" in caplog.text)
    change.cancel()
    with anyio.fail_after(30), pytest.raises(asyncio.CancelledError):
        await change
    [line] = [each for each in caplog.records if "cancelled task" in each.message]
    assert "The Redis of the sessions cannot be used" in line.message
    assert "Traceback" not in caplog.text
    await sessions.aclose()


async def test_a_message_whose_write_was_given_up_is_not_added_again(redis, monkeypatch):
    """Redis has done what it gave no answer to for too long."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.0)
    async with line_to(redis) as line:
        sessions = SessionManager(RedisStorage(line.url))
        kept = (await sessions.create("m")).session_id

        async def lose_the_next_too() -> None:  # the client tries twice by itself
            line.break_at, line.before_break = 1, None

        line.break_at, line.before_break = 1, lose_the_next_too
        with pytest.raises(StorageError, match="cannot be used"):
            await sessions.update(kept, lambda session: session.append(UserMessage(content="Hi")))
        assert len((await sessions.get(kept)).messages) == 1
        await sessions.aclose()


async def test_claims_are_renewed_as_soon_as_redis_is_back(tmp_path, monkeypatch, caplog):
    """Else the next message takes the session of a turn that could not renew its claim."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.0)
    lease_seconds = 30.0
    async with running_redis(tmp_path, *PERSISTENT) as redis:
        storage = RedisStorage(redis.url, lease_seconds=lease_seconds)
        async with storage.claim("one"):
            await redis.stop()
            await until(lambda: "cannot be used" in caplog.text)
            await redis.start()
            await until(lambda: "answers again" in caplog.text, seconds=lease_seconds / 4)
        assert len(caplog.records) == 2
        await storage.aclose()


async def test_an_outage_is_in_the_log_once(redis, monkeypatch, caplog):
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.0)
    async with line_to(redis) as line:
        storage = RedisStorage(line.url, lease_seconds=0.3)
        sessions = SessionManager(storage, sweep_seconds=0.05)
        await sessions.list()
        sessions.catalogue.watch()
        async with storage.claim("one"):
            line.cut()
            await until(lambda: line.refused > 30 and len(caplog.records) > 1)
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "The Redis of the sessions cannot be used",
            "The sessions cannot be checked",
        ]
        await sessions.aclose()


async def test_a_full_redis_refuses_what_must_be_stored_and_lets_sessions_be_read(redis, caplog):
    sessions = SessionManager(RedisStorage(redis.url))
    kept = (await sessions.create("m")).session_id
    await redis.command("CONFIG SET maxmemory 1")
    with anyio.fail_after(30):
        for work in (sessions.create, sessions.delete):
            with pytest.raises(StorageError, match="maxmemory"):
                await work(kept)
            assert (await sessions.get(kept)).session_id == kept
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "The Redis of the sessions cannot be used",
            "The Redis of the sessions answers again.",
        ]
        await redis.command("CONFIG SET maxmemory 0")
        await sessions.delete(kept)
    await sessions.aclose()
