"""A model of claims, leases and fencing, and each storage beside it.

Two processes use one session, in any order: they claim it, write, stand still until their lease
has expired, come back and write, are killed, edit from what they remember, delete. Redis and the
database forget all, or go on with what they knew some time ago. After each step every storage must
have answered as the model does, and must have what the model has. All short sequences are tried,
and many long ones; ``make test-deep`` tries more of both.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoDbBlocker

from mochi_server.errors import SessionBusy, SessionExists, SessionNotFound, StorageError
from mochi_server.sessions import JSONFileStorage, MemoryStorage
from mochi_server.sessions.storage import json_files
from mochi_server.sessions.storage.base import SessionChanged, SessionStorage
from mochi_server.sessions.storage.redis import RedisStorage
from sessions_app.backends.database import DatabaseStorage
from sessions_app.models import StoredSession
from tests.support.databases import database_alias
from tests.support.redis import needs_redis

ID = "one"
LOST = r"taken it over|forgotten the claim"
"""What a process is told that has lost its claim."""


class Bench:
    """What a test can do to a storage and its processes."""

    has_leases: ClassVar[bool] = False
    """Whether a claim outlives its process, ends while it stands still, and can be forgotten."""
    has_crashes: ClassVar[bool] = True

    async def process(self) -> SessionStorage:
        """Return the storage of a new process."""
        raise NotImplementedError

    async def expire(self) -> None:
        """Let the lease of the claim expire."""

    async def expire_lock(self) -> None:
        """Let the lease of an edit expire."""

    async def renew(self, storage: Any) -> None:
        """Let a process renew its claims."""
        await storage._renew()

    async def kill(self, storage: Any, claim: AsyncExitStack) -> None:
        """Let a process end that holds a claim, without a word."""

        async def nothing(*_: object) -> None:
            pass

        storage._release = nothing
        await claim.aclose()

    async def save(self) -> Any:
        """Return all that is stored, leases too."""

    async def load(self, saved: Any) -> None:
        """Let the storage be as it was; None: empty."""


class OfMemory(Bench):
    has_crashes = False

    def __init__(self) -> None:
        self._storage = MemoryStorage()

    async def process(self) -> SessionStorage:
        return self._storage


class OfFiles(Bench):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def process(self) -> SessionStorage:
        return JSONFileStorage(self._folder)

    async def kill(self, storage: SessionStorage, claim: AsyncExitStack) -> None:
        for each in Path("/proc/self/fd").iterdir():
            if each.exists() and each.readlink() == self._folder / ".locks" / f"{ID}.claim":
                nothing = os.open(os.devnull, os.O_RDONLY)
                os.dup2(nothing, int(each.name))  # closes the file, as the kernel does
                os.close(nothing)
        await claim.aclose()


class OfDatabase(Bench):
    has_leases = True

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._name = secrets.token_hex(4)

    async def process(self) -> SessionStorage:
        self._any = DatabaseStorage(name=self._name, alias=self._alias, lease_seconds=1000)
        return self._any

    async def _let_be_over(self, lease: str) -> None:
        held = self._any._row(ID).filter(**{f"{lease}__isnull": False})
        past = datetime(2000, 1, 1, tzinfo=timezone.utc)
        await self._any._threads.run(lambda: held.update(**{lease: past}))

    async def expire(self) -> None:
        await self._let_be_over("claim_until")

    async def expire_lock(self) -> None:
        await self._let_be_over("lock_until")

    async def save(self) -> list[dict[str, Any]]:
        return await self._any._threads.run(lambda: [*self._any._rows().values()])

    async def load(self, saved: list[dict[str, Any]] | None) -> None:
        rows = [StoredSession(**each) for each in saved or ()]
        await self._any._threads.run(lambda: self._any._rows().delete())
        stored = StoredSession.objects.using(self._alias)
        await self._any._threads.run(lambda: stored.bulk_create(rows))


class OfRedis(Bench):
    has_leases = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = f"sessions-{secrets.token_hex(4)}"

    async def process(self) -> SessionStorage:
        storage = RedisStorage(self._url, name=self._name, lease_seconds=1000)
        self._redis = storage._redis
        return storage

    async def expire(self) -> None:
        await self._redis.delete(f"mochi:{self._name}:claim:{ID}")

    async def expire_lock(self) -> None:
        await self._redis.delete(f"mochi:{self._name}:lock:{ID}")

    async def save(self) -> dict[bytes, bytes]:
        keys = await self._redis.keys(f"mochi:{self._name}:*")
        return {key: await self._redis.dump(key) for key in keys}

    async def load(self, saved: dict[bytes, bytes] | None) -> None:
        if keys := await self._redis.keys(f"mochi:{self._name}:*"):
            await self._redis.delete(*keys)
        for key, value in (saved or {}).items():
            await self._redis.restore(key, 0, value)


class Turn(NamedTuple):
    """A claim that a process believes to have."""

    number: int


@dataclass(frozen=True)
class State:
    """What is stored, as the model has it."""

    content: bytes | None = None
    claimed_by: Turn | None = None
    """Who has claimed the session last and not given it back, and so may write it."""
    lease: Turn | None = None
    """Whose lease has not expired."""


@dataclass
class Process:
    storage: SessionStorage
    turn: Turn | None = None
    claim: AsyncExitStack | None = None
    remembered: tuple[bytes, tuple[int, ...]] | None = None
    """What it has read last."""


class World:
    """Two processes, one storage, and the model of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.state = State()
        self.numbers = itertools.count(1)
        self.saved: tuple[State, Any] | None = None
        self.contents: dict[tuple[int, ...], bytes] = {}
        """Each version that was ever seen, and its content."""
        self.processes: list[Process] = []

    async def begin(self) -> None:
        self.processes = [Process(await self.bench.process()) for _ in range(2)]
        await self.edit_or_create(self.processes[0])

    async def step(self, name: str, index: int) -> None:
        await getattr(self, name)(self.processes[index])
        await self.check()

    async def check(self) -> None:
        for process in self.processes:
            if self.state.content is None:
                with pytest.raises(SessionNotFound):
                    await process.storage.read(ID)
            else:
                content, version = await process.storage.read(ID)
                assert content == self.state.content
                assert self.contents.setdefault(version, content) == content
        assert len(await self.processes[0].storage.entries()) == (self.state.content is not None)

    async def end(self) -> None:
        for process in self.processes:
            if process.claim is not None:
                await process.claim.aclose()
            await process.storage.aclose()

    def may_write(self, process: Process) -> bool:
        """Whether the process has no claim, or the last one that the storage knows."""
        return process.turn in (None, self.state.claimed_by)

    def written(self, content: bytes) -> None:
        self.state = replace(self.state, content=content)

    @contextmanager
    def checking_lapsed(self, process: Process) -> Iterator[None]:
        """Make sure that a claim is looked at first exactly if the last one was not given back."""
        checked: list[str] = []

        async def check_lapsed(session_id: str) -> None:
            checked.append(session_id)

        process.storage.check_lapsed = check_lapsed
        yield
        assert checked == ([ID] if self.state.claimed_by else [])

    # What processes do

    async def claim(self, process: Process) -> None:
        if process.turn or self.state.lease:
            with pytest.raises(SessionBusy):
                async with process.storage.claim(ID):
                    pass
            return
        process.claim, process.turn = AsyncExitStack(), Turn(next(self.numbers))
        with self.checking_lapsed(process):
            version = await process.claim.enter_async_context(process.storage.claim(ID))
        known = await process.storage.version(ID) if self.state.content is not None else None
        assert version == known
        self.state = replace(self.state, claimed_by=process.turn, lease=process.turn)

    async def release(self, process: Process) -> None:
        if process.claim is None:
            return
        await process.claim.aclose()
        self.released(process)

    def released(self, process: Process) -> None:
        state, turn = self.state, process.turn
        if state.lease == turn:
            state = replace(state, lease=None)
        if state.claimed_by == turn:
            state = replace(state, claimed_by=None)
        self.state, process.turn, process.claim = state, None, None

    async def edit_or_create(self, process: Process) -> None:
        """Change what is there, or create it, as an import does."""
        text = f"{next(self.numbers)}.".encode()
        if self.state.content is None:
            write = self._create(process.storage, text)
        else:
            text = self.state.content + text
            write = self._edit(process.storage, text)
        if self.may_write(process):
            version = await write
            self.written(text)
            process.remembered = (text, version)
        else:
            with pytest.raises(StorageError, match=LOST):
                await write

    async def _create(self, storage: SessionStorage, text: bytes) -> tuple[int, ...]:
        version = await storage.create(ID, [text])
        with pytest.raises(SessionExists):
            await storage.create(ID, [b"twice"])
        return version

    async def _edit(self, storage: SessionStorage, text: bytes) -> tuple[int, ...]:
        async with storage.lock(ID) as hold:
            assert hold.version == (await storage.read(ID))[1]
            return await hold.write([text])

    async def update(self, process: Process) -> None:
        """Write over what the process has read last, whatever it is."""
        if process.remembered is None:
            return
        known, version = process.remembered
        text = known + f"{next(self.numbers)}.".encode()
        write = process.storage.replace(ID, version, [text])
        if known != self.state.content:
            with pytest.raises((SessionChanged, StorageError)):
                await write
        elif not self.may_write(process):
            with pytest.raises(StorageError, match=LOST):
                await write
        else:
            process.remembered = (text, await write)
            self.written(text)

    async def edit_slowly(self, process: Process) -> None:
        """Edit for longer than a lock lasts, while the other process edits too."""
        other = self.processes[self.processes[0] is process]
        if self.state.content is None or not self.bench.has_leases or not self.may_write(other):
            return
        async with process.storage.lock(ID) as hold:
            await self.bench.expire_lock()
            await self.edit_or_create(other)
            with pytest.raises((SessionChanged, StorageError)):
                await hold.write([b"late"])

    async def delete(self, process: Process) -> None:
        if self.state.content is None:
            return
        if not self.may_write(process):
            with pytest.raises(StorageError, match=LOST):
                await process.storage.delete(ID)
        if process.turn or self.state.lease:
            await self.claim(process)  # is refused
            return
        with self.checking_lapsed(process):
            async with process.storage.claim(ID), process.storage.lock(ID):
                await process.storage.delete(ID)
        self.state = State()

    # What happens to them

    async def expire(self, _: Process) -> None:
        if self.bench.has_leases:
            await self.bench.expire()
            self.state = replace(self.state, lease=None)

    async def renew(self, process: Process) -> None:
        if not self.bench.has_leases:
            return
        await self.bench.renew(process.storage)
        turn, state = process.turn, self.state
        if turn and state.claimed_by == turn and state.lease in (turn, None):
            self.state = replace(state, lease=turn)

    async def kill(self, process: Process) -> None:
        if not self.bench.has_crashes:
            return
        if process.claim is not None:
            await self.bench.kill(process.storage, process.claim)
            if not self.bench.has_leases:
                self.released(process)
        await process.storage.aclose()
        process.turn = process.claim = process.remembered = None
        process.storage = await self.bench.process()

    async def forget(self, _: Process) -> None:
        """Go on with an empty database."""
        if self.bench.has_leases:
            await self.bench.load(None)
            self.state = State()

    async def save(self, _: Process) -> None:
        if self.bench.has_leases:
            self.saved = (self.state, await self.bench.save())

    async def fail_over(self, _: Process) -> None:
        """Go on with a copy of the database that is behind."""
        if self.saved is not None:
            self.state = self.saved[0]
            await self.bench.load(self.saved[1])


OF_ONE = ("claim", "edit_or_create", "update", "release", "delete", "renew", "edit_slowly", "kill")
OF_BOTH = ("expire", "forget", "save", "fail_over")
STEPS = [*itertools.product(OF_ONE, (0, 1)), *itertools.product(OF_BOTH, (0,))]
OF_CLAIMS = ("claim", "edit_or_create", "release", "renew", "kill")
STEPS_OF_CLAIMS = [*itertools.product(OF_CLAIMS, (0, 1)), ("expire", 0)]

DEPTH = int(os.environ.get("MOCHI_MODEL_DEPTH", "2"))
EXAMPLES = int(os.environ.get("MOCHI_MODEL_EXAMPLES", "40"))

Make = Callable[[], Bench]


@pytest.fixture(
    params=[
        *("memory", "files"),
        pytest.param("database", marks=pytest.mark.slow),
        pytest.param("redis", marks=[needs_redis, pytest.mark.slow]),
    ]
)
def make(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    redis_url: str,
    django_db_blocker: DjangoDbBlocker,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    monkeypatch.setattr(json_files, "_CLAIM_RETRIES", ())  # nobody tidies up meanwhile
    if request.param == "memory":
        yield OfMemory
    elif request.param == "files":
        numbers = itertools.count()
        yield lambda: OfFiles(tmp_path / str(next(numbers)))
    elif request.param == "database":
        with database_alias(f"sqlite:///{tmp_path / 'sessions'}", django_db_blocker) as alias:
            yield lambda: OfDatabase(alias)
    else:
        yield lambda: OfRedis(redis_url)


async def run(make: Make, steps: Sequence[tuple[str, int]]) -> None:
    world = World(make())
    await world.begin()
    try:
        for name, index in steps:
            await world.step(name, index)
    finally:
        await world.end()


OVERTAKEN = [("claim", 0), ("expire", 0), ("claim", 1)]
"""The claim of a process has lapsed, and another one has claimed the session."""
AGAIN = [("release", 0), ("claim", 0)]


@pytest.mark.timeout(480)
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=20, max_size=40))
@example([*OVERTAKEN, *AGAIN])
@example([*OVERTAKEN, ("expire", 0), ("renew", 0), *AGAIN])
@example([*OVERTAKEN, ("edit_or_create", 0), ("update", 0), ("delete", 0), *AGAIN])
@example([("claim", 0), ("expire", 0), ("claim", 0), ("claim", 1), ("edit_slowly", 1), *AGAIN])
async def test_storages_do_what_the_model_does(make: Make, steps: list[tuple[str, int]]) -> None:
    await run(make, steps)


@pytest.mark.slow
@pytest.mark.timeout(400 * DEPTH)
async def test_every_short_way_after_a_claim_is_as_in_the_model(make: Make) -> None:
    for steps in itertools.product(STEPS_OF_CLAIMS, repeat=DEPTH):
        await run(make, [("claim", 0), *steps])
