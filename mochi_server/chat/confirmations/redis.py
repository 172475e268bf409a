"""Confirmations in Redis, which the processes of several machines share.

Confirmations and decisions are two hashes. Whatever changes them also adds the id to a stream: each
process reads it on from where it stopped, and who waits does so by a blocking read. Where the last
entry that a process knows is not in the stream any more, it reads everything again.

A script may be executed twice: it is sent again when no answer has come.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from pydantic import TypeAdapter
from redis.exceptions import RedisError

from ...core.aio import in_thread_if, yield_to_loop
from ...core.redis import connect
from ...errors import ConfirmationUnavailable
from .confirmation import (
    CONFIRMATION,
    DECISION,
    RECORD,
    SYSTEM_CLOCK,
    Clock,
    Confirmation,
    ConfirmationDecision,
    ConfirmationRecord,
    dump,
)
from .store import LOST, ConfirmationStore, StoredConfirmation

T = TypeVar("T")

logger = logging.getLogger(__name__)

ASKED: Final = "mochi:confirmations"
DECIDED: Final = "mochi:confirmations:decisions"
CHANGES: Final = "mochi:confirmations:changes"
RECORDS: Final = "mochi:confirmations:history"
ORDER: Final = "mochi:confirmations:history:order"
"""Sorted set of the ids in the history."""
CHECK: Final = "mochi:confirmations:check"

MAX_CHANGES = 10_000
"""Changes after which a process that has not looked must read everything again, about."""

MAX_RECORDS = 10_000
"""Entries of the history that are kept."""

MANY: Final = 100
"""Confirmations from which on they are read in a thread."""

NONCE_LENGTH: Final = 16
"""Characters before the JSON of a decision, by which a decider knows its own.

The history has them too: the decision may have been acted on before the decider gets its answer.
"""

RULE: Final = b"-" * NONCE_LENGTH
"""What the history has instead where a rule has decided."""

_ADD = """
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'id', ARGV[1])
end
"""

_SETTLE = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  local record = redis.call('HGET', KEYS[4], ARGV[1]) or ''
  return record:sub(1, ARGV[4]) == ARGV[2]:sub(1, ARGV[4]) and 1 or 0
end
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 1 then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[3], '*', 'id', ARGV[1])
  return 1
end
return redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[2] and 1 or 0
"""

_REMOVE = """
if redis.call('HDEL', KEYS[1], ARGV[1]) + redis.call('HDEL', KEYS[2], ARGV[1]) > 0 then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*', 'id', ARGV[1])
end
"""

_APPEND = """
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local decided = redis.call('HGET', KEYS[3], ARGV[1]) or ARGV[4]
redis.call('HSET', KEYS[1], ARGV[1], decided:sub(1, #ARGV[4]) .. ARGV[2])
redis.call('ZADD', KEYS[2], (last[2] or 0) + 1, ARGV[1])
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1 - ARGV[3])) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[1], id)
end
"""


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise ConfirmationUnavailable(reason=str(error)) from error


class RedisConfirmationStore(ConfirmationStore):
    """Keeps confirmations in Redis.

    When Redis has forgotten them, as after a restart without a file, the processes in which
    somebody waits store again what they know.
    """

    poll_seconds = 0.25

    def __init__(
        self, url: str, *, clock: Clock = SYSTEM_CLOCK, max_records: int = MAX_RECORDS
    ) -> None:
        super().__init__(clock=clock)
        self._redis = connect(url)
        self._adding = self._redis.register_script(_ADD)
        self._settling = self._redis.register_script(_SETTLE)
        self._removing = self._redis.register_script(_REMOVE)
        self._appending = self._redis.register_script(_APPEND)
        self._max_records = max_records
        self._last: bytes | None = None
        """The last change that ``_stored`` has; None if it must be read as a whole."""
        self._lock = asyncio.Lock()

    async def _add(self, confirmation: Confirmation) -> None:
        content = dump(confirmation.fields())
        with _translate_errors():
            arguments = (confirmation.confirmation_id, content, MAX_CHANGES)
            await self._adding((ASKED, CHANGES), arguments)

    async def _find(self, confirmation_id: str) -> StoredConfirmation | None:
        with _translate_errors():
            pipeline = self._redis.pipeline()
            pipeline.hget(ASKED, confirmation_id).hget(DECIDED, confirmation_id)
            asked, decided = await pipeline.execute()
        return None if asked is None else _parse_stored(asked, decided)

    async def _settle(self, confirmation: Confirmation, decision: ConfirmationDecision) -> bool:
        content = secrets.token_hex(NONCE_LENGTH // 2).encode() + dump(decision.payload())
        with _translate_errors():
            arguments = (confirmation.confirmation_id, content, MAX_CHANGES, NONCE_LENGTH)
            return bool(await self._settling((ASKED, DECIDED, CHANGES, RECORDS), arguments))

    async def _remove(self, confirmation_id: str) -> None:
        with _translate_errors():
            await self._removing((ASKED, DECIDED, CHANGES), (confirmation_id, MAX_CHANGES))

    async def _refresh(self) -> None:
        async with self._lock:
            with _translate_errors():
                if not await self._read_changes():
                    await self._read_all()

    async def _read_changes(self) -> bool:
        """Read what has changed; return False if that cannot be known."""
        if self._last is None:
            return False
        changes = await self._redis.xrange(CHANGES, min=self._last)
        if not changes or changes[0][0] != self._last:
            return False
        if changed := list(dict.fromkeys(fields[b"id"] for _, fields in changes[1:])):
            pipeline = self._redis.pipeline()
            pipeline.hmget(ASKED, changed).hmget(DECIDED, changed)
            contents = zip(changed, *await pipeline.execute(), strict=True)
            await self._compare({name: (asked, decided) for name, asked, decided in contents})
        self._last = changes[-1][0]
        return True

    async def _read_all(self) -> None:
        pipeline = self._redis.pipeline()
        pipeline.xrevrange(CHANGES, count=1).xlen(CHANGES).hgetall(ASKED).hgetall(DECIDED)
        last, length, asked, decided = await pipeline.execute()
        # A stream that is shorter than its bound has dropped nothing.
        is_forgotten = self._last is not None and length < MAX_CHANGES
        missing = [name for name in map(str.encode, self._stored) if name not in asked]
        if is_forgotten and self._watchers:
            await self._restore(missing)
        else:
            asked.update(dict.fromkeys(missing))
        await self._compare({name: (each, decided.get(name)) for name, each in asked.items()})
        self._last = last[0][0] if last else None

    async def _restore(self, missing: Iterable[bytes]) -> None:
        """Store again what Redis has forgotten."""
        for name in missing:
            stored = self._stored[name.decode()]
            await self._add(stored.confirmation)
            if stored.decision is not None:
                await self._settle(stored.confirmation, stored.decision)

    async def _compare(self, contents: Mapping[bytes, tuple[bytes | None, bytes | None]]) -> None:
        """Compare what is stored with what this process knows of it."""
        gone = [name for name, (asked, _) in contents.items() if asked is None]
        unknown = [name for name in gone if self._is_pending(name)]
        records = await self._records(unknown)
        changed = {
            name: (asked, decided)
            for name, (asked, decided) in contents.items()
            if asked is not None
            and (name.decode() not in self._stored or (decided and self._is_pending(name)))
        }
        for stored in await in_thread_if(len(changed) > MANY, _parse_all, changed):
            self._learn(stored)
        for name in map(bytes.decode, gone):
            if name in self._stored:
                record = records.get(name)
                self._forget(name, None if record is None else record.decision)

    def _is_pending(self, name: bytes) -> bool:
        stored = self._stored.get(name.decode())
        return stored is not None and stored.decision is None

    async def _wait(self) -> None:
        try:
            block = int(self.poll_seconds * 1000)
            await self._redis.xread({CHANGES: self._last or "0"}, count=1, block=block)
        except RedisError:  # the next look tells of it
            await super()._wait()

    async def _append(self, record: ConfirmationRecord) -> None:
        content = dump(record.fields())
        with _translate_errors():
            arguments = (record.confirmation.confirmation_id, content, self._max_records, RULE)
            await self._appending((RECORDS, ORDER, DECIDED), arguments)

    async def history(
        self, *, limit: int = 100, before: str | None = None
    ) -> list[ConfirmationRecord]:
        with _translate_errors():
            rank = -1 if before is None else await self._redis.zrevrank(ORDER, before)
            if rank is None or limit < 1:
                return []
            names = await self._redis.zrevrange(ORDER, rank + 1, rank + limit)
            return list((await self._records(names)).values())

    async def _record_of(self, confirmation_id: str) -> ConfirmationRecord | None:
        with _translate_errors():
            return (await self._records([confirmation_id])).get(confirmation_id)

    async def _records(self, names: list[bytes] | list[str]) -> dict[str, ConfirmationRecord]:
        """Return entries of the history by the id of their confirmation."""
        contents = await self._redis.hmget(RECORDS, names) if names else []
        records = (_parse(RECORD, each[NONCE_LENGTH:]) for each in contents if each is not None)
        return {each.confirmation.confirmation_id: each for each in records if each is not None}

    async def check(self) -> bool:
        try:
            return bool(await self._redis.set(CHECK, 1, px=1000))
        except RedisError:
            return False

    async def aclose(self) -> None:
        await super().aclose()
        await self._redis.aclose()


def _parse(kind: TypeAdapter[T], content: bytes) -> T | None:
    """Return what is stored; None if it cannot be understood, as that of another version."""
    try:
        return kind.validate_python(json.loads(content))
    except (ValueError, RecursionError) as error:
        logger.warning("A confirmation in Redis cannot be read: %s", type(error).__name__)
        return None


def _parse_stored(asked: bytes, decided: bytes | None) -> StoredConfirmation | None:
    """Return a confirmation and its decision; one that cannot be understood is a denial."""
    confirmation = _parse(CONFIRMATION, asked)
    if confirmation is None or decided is None:
        return None if confirmation is None else StoredConfirmation(confirmation)
    return StoredConfirmation(confirmation, _parse(DECISION, decided[NONCE_LENGTH:]) or LOST)


def _parse_all(contents: Mapping[bytes, tuple[bytes, bytes | None]]) -> list[StoredConfirmation]:
    """Return what can be understood, the oldest first; for a thread."""
    result = []
    for number, (asked, decided) in enumerate(contents.values()):
        if (stored := _parse_stored(asked, decided)) is not None:
            result.append(stored)
        if number % MANY == MANY - 1:
            yield_to_loop()
    result.sort(key=lambda stored: stored.confirmation.asked_at)
    return result
