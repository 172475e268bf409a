"""The journal in Redis, which the processes of several machines share.

A run has three keys: a hash with its head and its fencing number, a stream of its lines, whose ids
count them, and a lease, which expires unless the process that has the run renews it. Whoever takes
a run of which there is no lease raises the fencing number, and from then on Redis refuses what its
former process writes.

A flush is one call of a script for all runs of a process. It skips the lines that were written
before, so that it can be sent again when no answer has come.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import orjson
from redis.exceptions import RedisError

from ...core.aio import BackgroundTasks
from ...core.redis import connect
from .base import JournalledRun, JournalPart, RunJournal, RunWriter, Sink, translate_errors
from .records import HEAD_BEGIN, STATE_BEGINS, Note, RunHead, decode, encode_head

logger = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
"""Time after which others may take the runs of a process that Redis does not hear of."""

MAX_LINES = 100_000
"""Lines of a run that are kept, about: those of three hours without a pause."""

MAX_LINES_AT_ONCE = 100_000
"""Lines of one flush, when Redis was away for long: a command has at most a million words."""

RUNS: Final = "mochi:runs"
"""Hash by run: ``[session, time of its start, state]``; the state of a running one is empty."""
RUNNING: Final = "mochi:runs:running"
"""Set of the runs that have not ended and do not wait for a person: few of all."""
ENDED: Final = "mochi:runs:ended"
"""Sorted set of ended runs, by the time of their end."""
WAITING: Final = "waiting"
"""Note and state of a run that was parked."""
QUEUED: Final = "queued"
"""State of a run that has not begun."""
LINES: Final = ":lines"
LEASE: Final = ":lease"
"""What follows the key of a run in those of its lines and its lease."""

_WRITE = """
local runs, ended, running, lease_ms, max_lines = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local answers, at = {}, 3
for i = 4, #KEYS do
  local run = KEYS[i]
  local id, fence, before, head, entry, state, length = unpack(ARGV, at, at + 6)
  local known = redis.call('HMGET', run, 'fence', 'lines')
  local count = known[2] or before
  at = at + 7
  if not known[1] and head == '' then
    answers[i - 3] = -1
  elseif known[1] and known[1] ~= fence then
    answers[i - 3] = 0
  else
    if not known[1] then redis.call('HSET', run, 'fence', fence) end
    if head ~= '' then redis.call('HSET', run, 'head', head) end
    for line = at + count - before, at + length - 1 do
      count = count + 1
      redis.call('XADD', run .. ':lines', 'MAXLEN', '~', max_lines, count, 'line', ARGV[line])
    end
    redis.call('HSET', run, 'lines', count)
    local is_live = state == '' or state == 'queued'
    if entry ~= '' then
      redis.call('HSET', runs, id, entry)
      redis.call(is_live and 'SADD' or 'SREM', running, id)
    end
    if is_live then
      redis.call('SET', run .. ':lease', fence, 'PX', lease_ms)
    elseif state == 'waiting' then
      redis.call('DEL', run .. ':lease')
    else
      local now = redis.call('TIME')
      redis.call('HSET', run, 'end', state)
      redis.call('ZADD', ended, now[1] + now[2] / 1000000, id)
      redis.call('DEL', run .. ':lease')
    end
    answers[i - 3] = 1
  end
  at = at + length
end
return answers
"""
"""Returns for each run 1 if it is written, 0 if another process has it, -1 if it is unknown."""

_TAKE = """
local known = redis.call('HMGET', KEYS[1], 'lines', 'head', 'end')
if not known[1] or known[3] or redis.call('EXISTS', KEYS[2]) == 1 then return false end
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('SET', KEYS[2], fence, 'PX', ARGV[1])
return {fence, tonumber(known[1]), known[2]}
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


@dataclass(slots=True, eq=False)
class _OwnRun:
    """A run that this process has."""

    head: RunHead
    fence: int = 1
    written: int = 0
    """Number of its lines in Redis."""
    renewed: float | None = None
    """When its lease was renewed; None before its first line is written."""

    def entry(self, state: str) -> bytes:
        """Return what the list of runs has of it."""
        head = self.head
        owner = [] if head.owner is None else [head.owner]
        return orjson.dumps([head.session_id, head.started_at, state, *owner])


class _RedisSink(Sink):
    """Redis, to which the lines of all runs of this process go."""

    def __init__(
        self,
        redis: Any,  # noqa: ANN401 - see ``connect``
        lease_seconds: float,
        max_lines: int,
        on_lost: Callable[[str], None],
    ) -> None:
        self._redis = redis
        self._lease_seconds = lease_seconds
        self._max_lines = max_lines
        self._on_lost = on_lost
        self._script = redis.register_script(_WRITE)
        self.runs: dict[str, _OwnRun] = {}

    async def append(self, data: bytes) -> int:
        lines = data.splitlines(keepends=True)[:MAX_LINES_AT_ONCE]
        by_run: dict[str, list[bytes]] = {}
        for line in lines:
            run_id, _, rest = line.partition(b" ")
            by_run.setdefault(run_id.decode(), []).append(rest[:-1])
        await self._write(by_run)
        return sum(map(len, lines))

    def close(self) -> None:
        """Stay open, for other runs."""

    async def renew(self) -> None:
        """Renew the leases of all runs.

        Raises:
            OSError: Redis could not be reached.
        """
        await self._write({run_id: [] for run_id, run in self.runs.items() if run.renewed})

    async def _write(self, by_run: Mapping[str, Sequence[bytes]]) -> None:
        started = time.monotonic()
        by_run = {run_id: lines for run_id, lines in by_run.items() if run_id in self.runs}
        try:
            answers = await self._send(by_run)
            forgotten = {
                run_id: by_run[run_id]
                for run_id, answer in answers.items()
                if answer == -1 and self._may_restore(run_id)
            }
            answers |= await self._send(forgotten, restore=True)
        except RedisError as error:
            raise ConnectionError(str(error)) from error
        for run_id, answer in answers.items():
            if answer != 1:
                del self.runs[run_id]
                self._on_lost(run_id)
            elif _change_in(by_run[run_id]) not in {None, "", WAITING, QUEUED}:
                del self.runs[run_id]
            else:
                self.runs[run_id].written += len(by_run[run_id])
                self.runs[run_id].renewed = started

    def _may_restore(self, run_id: str) -> bool:
        """Return whether Redis has lost a run that nobody can have taken meanwhile."""
        renewed = self.runs[run_id].renewed
        return renewed is not None and time.monotonic() - renewed < self._lease_seconds

    async def _send(
        self, by_run: Mapping[str, Sequence[bytes]], *, restore: bool = False
    ) -> dict[str, int]:
        if not by_run:
            return {}
        arguments: list[str | bytes | int] = [int(self._lease_seconds * 1000), self._max_lines]
        for run_id, lines in by_run.items():
            run, change = self.runs[run_id], _change_in(lines)
            is_new = restore or run.renewed is None
            begins = any(line.startswith(HEAD_BEGIN) for line in lines)
            head = encode_head(run.head) if is_new or begins else b""
            state = (QUEUED if run.head.is_queued else "") if change is None else change
            entry = run.entry(state) if is_new or change is not None else b""
            arguments += (run_id, run.fence, run.written, head, entry, state, len(lines), *lines)
        answers = await self._script((RUNS, ENDED, RUNNING, *map(_key, by_run)), arguments)
        return dict(zip(by_run, answers, strict=True))


class RedisRunJournal(RunJournal):
    """Runs in Redis.

    An owner that Redis has not heard of for the time of a lease has lost its run as soon as
    another process takes it; it notices at its next write.
    """

    follow_seconds = 1.0
    has_leases = True

    def __init__(
        self, url: str, *, lease_seconds: float = LEASE_SECONDS, max_lines: int = MAX_LINES
    ) -> None:
        super().__init__()
        self._redis = connect(url)
        self._lease_seconds = lease_seconds
        self._sink = _RedisSink(self._redis, lease_seconds, max_lines, self._lose)
        self._taking = self._redis.register_script(_TAKE)
        self._releasing = self._redis.register_script(_RELEASE)
        self._tasks = BackgroundTasks()
        self._renewer: asyncio.Task[None] | None = None

    def _open(self, head: RunHead) -> Sink:
        known = self._sink.runs.get(head.run_id)
        if known is None:
            self._own(_OwnRun(head))
        else:
            known.head = head
        return self._sink

    def _own(self, run: _OwnRun) -> None:
        self._sink.runs[run.head.run_id] = run
        if self._renewer is None or self._renewer.done():
            self._renewer = self._tasks.spawn(self._renew(), name="leases of runs")

    async def _renew(self) -> None:
        while self._sink.runs:
            await anyio.sleep(self._lease_seconds / 3)
            async with self._writing:
                with suppress(OSError):  # a flush tells of it
                    await self._sink.renew()

    def _lose(self, run_id: str) -> None:
        logger.warning("The run %s is lost to this process: its lease had expired.", run_id)
        if (writer := self._writers.get(run_id)) is not None:
            writer.is_lost = True

    async def take(self, run_id: str) -> RunWriter | None:
        if run_id in self._sink.runs:
            return None
        started = time.monotonic()
        with translate_errors(RedisError):
            keys = (_key(run_id), _key(run_id) + LEASE)
            taken = await self._taking(keys, (int(self._lease_seconds * 1000),))
        if taken is None:
            return None
        fence, written, line = taken
        head = decode(line)
        assert isinstance(head, RunHead)  # noqa: S101 - the script has written it
        self._own(_OwnRun(head, fence, written, started))
        writer = self._writers[run_id] = RunWriter(run_id, self._sink)
        return writer

    async def _release(self, writer: RunWriter) -> None:
        run = self._sink.runs.pop(writer.run_id, None)
        if run is not None and not self._failed:  # else the lease expires
            with suppress(RedisError):
                await self._releasing((_key(writer.run_id) + LEASE,), (run.fence,))

    async def read(self, run_id: str, position: object = None) -> JournalPart | None:
        after = _number(position)
        key = _key(run_id)
        with translate_errors(RedisError):
            pipeline = self._redis.pipeline()
            pipeline.hget(key, "head").exists(key + LEASE).xrange(key + LINES, after + 1)
            head, is_held, entries = await pipeline.execute()
        if head is None:
            return None
        lines = [line for _, fields in entries if (line := decode(fields[b"line"])) is not None]
        if after == 0 and not (lines and isinstance(lines[0], RunHead)):  # it was dropped
            lines[:0] = filter(None, [decode(head)])
        if entries:
            after = int(entries[-1][0].partition(b"-")[0])
        return JournalPart(lines, after, bool(is_held))

    async def wait(self, run_id: str, position: object) -> None:
        streams = {_key(run_id) + LINES: _number(position)}
        try:
            await self._redis.xread(streams, count=1, block=int(self.follow_seconds * 1000))
        except RedisError:
            await super().wait(run_id, position)

    async def runs(self, session_ids: Container[str] | None = None) -> list[JournalledRun]:
        with translate_errors(RedisError):
            entries = await self._redis.hgetall(RUNS)
            runs = {run_id.decode(): orjson.loads(entry) for run_id, entry in entries.items()}
            held = await self._held(
                [run_id for run_id, (_, _, state, *_) in runs.items() if state in {"", QUEUED}]
            )
        return [
            JournalledRun(
                run_id,
                session_id,
                started_at,
                None if state in {"", WAITING, QUEUED} else state,
                is_held=run_id in held,
                is_parked=state == WAITING,
                is_queued=state == QUEUED,
                owner=owner[0] if owner else None,
            )
            for run_id, (session_id, started_at, state, *owner) in runs.items()
            if session_ids is None or session_id in session_ids
        ]

    async def dead_runs(self) -> list[str]:
        with translate_errors(RedisError):
            running = [run_id.decode() for run_id in await self._redis.smembers(RUNNING)]
            held = await self._held(running)
        return [run_id for run_id in running if run_id not in held]

    async def _held(self, run_ids: list[str]) -> set[str]:
        """Return those of these runs that a process executes."""
        if not run_ids:
            return set()
        leases = await self._redis.mget([_key(run_id) + LEASE for run_id in run_ids])
        return {run_id for run_id, lease in zip(run_ids, leases, strict=True) if lease}

    async def prune(self, seconds: float) -> None:
        with translate_errors(RedisError):
            now, microseconds = await self._redis.time()
            before = now + microseconds / 1_000_000 - seconds
            old = await self._redis.zrangebyscore(ENDED, "-inf", f"({before:f}")
            pipeline = self._redis.pipeline()
            for run_id in old:
                key = _key(run_id.decode())
                pipeline.unlink(key, key + LINES, key + LEASE)
                pipeline.hdel(RUNS, run_id).zrem(ENDED, run_id)
            await pipeline.execute()

    async def aclose(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait({self._renewer})
        await super().aclose()
        await self._redis.aclose()


def _key(run_id: str) -> str:
    return f"mochi:run:{run_id}"


def _number(position: object) -> int:
    return position if isinstance(position, int) else 0


def _change_in(lines: Sequence[bytes]) -> str | None:
    """Return the state that lines bring a run to, empty where it runs; None where none does."""
    for line in reversed(lines):
        if not line.startswith(STATE_BEGINS):
            continue
        change = decode(line)
        if isinstance(change, RunHead):
            return QUEUED if change.is_queued else ""
        if isinstance(change, Note):
            if change.name == "end":
                return str(change.data["state"])
            return WAITING if change.name == WAITING else ""
    return None
