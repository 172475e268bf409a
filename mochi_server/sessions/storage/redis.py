"""Sessions in Redis, which the processes of several machines share.

A session has two keys: its content, and a hash with its version and the token of the last claim.
One hash has the versions of all. A version is the time of the write, so that it does not come
again after Redis has lost some of what it knew.

A script may be executed twice: it is sent again when no answer has come. It knows by a nonce what
it has done already.
"""

from __future__ import annotations

import gzip
import secrets
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from redis import exceptions

from ...core.aio import KeyedLocks, in_thread, in_thread_if
from ...core.outages import OutageRetry
from ...core.redis import connect
from ...errors import MochiError, SessionExists, SessionNotFound, SessionUnreadable
from .base import Entry, SessionChanged, check_session_id
from .leased import LEASE_SECONDS, ClaimLapsed, Expected, Lease, LeasedStorage, claim_lost

DAY_MS: Final = 86_400_000

DELETED_SECONDS = 60
"""How long a deletion knows that it was its own."""

LARGE: Final = 64_000
"""Bytes from which on a content is packed and unpacked in a thread."""

PACKING: Final = 1024
"""More than a packed content has before its first bytes: its header and its codes."""

GZIP: Final = b"\x1f\x8b"
"""How a packed content begins, and no JSON does."""

# Let `changes` be `now`, or one more than it was if the clock has not moved on.
_CHANGE: Final = """
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
if tonumber(redis.call('GET', KEYS[4]) or '0') < tonumber(now) then
  redis.call('SET', KEYS[4], now)
else
  redis.call('INCR', KEYS[4])
end
"""

# KEYS: content, state, versions, changes, ends, lock.
# ARGV: id, nonce, expected version, claim, milliseconds until it expires or 0, content, lock.
_WRITE = f"""
local state = redis.call('HMGET', KEYS[2], 'version', 'nonce', 'claim')
local version, claim = state[1], state[3]
if version and state[2] == ARGV[2] then return version end
if ARGV[3] == 'new' and version then return 'exists' end
if ARGV[3] ~= 'any' and ARGV[3] ~= 'new' then
  if version ~= ARGV[3] then return 'changed' end
  local lock = redis.call('GET', KEYS[6])
  if lock and lock ~= ARGV[7] then return 'changed' end
end
if ARGV[4] ~= '' and claim ~= ARGV[4] then return 'lost' end
{_CHANGE}
version = redis.call('GET', KEYS[4])
redis.call('SET', KEYS[1], ARGV[6])
redis.call('HSET', KEYS[2], 'version', version, 'nonce', ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], version .. ' ' .. now .. ' ' .. #ARGV[6])
if ARGV[5] == '0' then
  redis.call('PERSIST', KEYS[2])
  redis.call('ZREM', KEYS[5], ARGV[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
  redis.call('ZADD', KEYS[5], math.floor(now / 1000) + ARGV[5], ARGV[1])
end
return version
"""

# KEYS: content, state, versions, changes, the mark of the deletion.
# ARGV: id, nonce, claim, seconds.
_DELETE = f"""
if redis.call('GET', KEYS[5]) == ARGV[2] then return 'deleted' end
local state = redis.call('HMGET', KEYS[2], 'version', 'claim')
if not state[1] then return 'missing' end
if ARGV[3] ~= '' and state[2] ~= ARGV[3] then return 'lost' end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HDEL', KEYS[3], ARGV[1])
{_CHANGE}
redis.call('SET', KEYS[5], ARGV[2], 'EX', ARGV[4])
return 'deleted'
"""

# Remove what has expired from the list; a lease may have put it off.
# KEYS: ends, prefix of contents, versions, changes.
_SWEEP = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local removed = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  local left = redis.call('PTTL', KEYS[2] .. id)
  if left >= 0 then
    redis.call('ZADD', KEYS[1], now + left + 1, id)
  else
    redis.call('ZREM', KEYS[1], id)
    if left == -2 then removed = removed + redis.call('HDEL', KEYS[3], id) end
  end
end
if removed > 0 then
{_CHANGE}
end
return redis.call('GET', KEYS[4])
"""

# A session that is in use does not expire.
_KEEP: Final = """
local function keep(key, milliseconds)
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(milliseconds) then
    redis.call('PEXPIRE', key, milliseconds)
  end
end
"""

# KEYS: lease, content, state.
# ARGV: token, milliseconds, whether it is a claim, whether the lease of the last one may be over.
_TAKE = f"""
{_KEEP}
local last = redis.call('GET', KEYS[1])
if last ~= ARGV[1] then
  if not last and ARGV[4] == '0' and redis.call('HGET', KEYS[3], 'claim') then return 'lapsed' end
  if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
  if ARGV[3] == '1' then redis.call('HSET', KEYS[3], 'claim', ARGV[1]) end
end
keep(KEYS[2], ARGV[2])
keep(KEYS[3], ARGV[2])
return redis.call('HGET', KEYS[3], 'version') or ''
"""

# KEYS: lease, content and state of each. ARGV: milliseconds, a token for each.
# A session that its claim has deleted has no state any more.
_RENEW = f"""
{_KEEP}
local answers = {{}}
for i = 1, #KEYS, 3 do
  local token = ARGV[2 + #answers]
  local last = redis.call('HGET', KEYS[i + 2], 'claim') or redis.call('GET', KEYS[i])
  local is_ours = last == token
  if is_ours then
    redis.call('SET', KEYS[i], token, 'PX', ARGV[1])
    keep(KEYS[i + 1], ARGV[1])
    keep(KEYS[i + 2], ARGV[1])
  end
  answers[#answers + 1] = is_ours and 1 or 0
end
return answers
"""

# KEYS: lease, state. ARGV: token.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if redis.call('HGET', KEYS[2], 'claim') == ARGV[1] then redis.call('HDEL', KEYS[2], 'claim') end
"""


class RedisStorage(LeasedStorage):
    """Sessions in Redis, which keeps what it has as it is set up to."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "sessions",
        compress: bool = False,
        retention_days: float | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Connect when it is used.

        Args:
            url: Address of Redis.
            name: Begin of all keys, after ``mochi:``.
            compress: Whether contents are written with gzip; both are read.
            retention_days: Days after its last change when a session expires; None: never.
            lease_seconds: Time after which the claims of a process that has died are free.
        """
        super().__init__(name, lease_seconds)
        self._redis = connect(url)
        self._outage = OutageRetry(
            "The Redis of the sessions",
            (exceptions.RedisError,),
            transient=(exceptions.ConnectionError,),
        )
        self._compress = compress
        self._retention_ms = 0 if retention_days is None else max(1, int(retention_days * DAY_MS))
        self._prefix = f"mochi:{name}:"
        self._versions = f"{self._prefix}versions"
        self._changes = f"{self._prefix}changes"
        self._ends = f"{self._prefix}ends"
        """When sessions expire, in milliseconds since 1970, where they do."""
        self._writing = self._redis.register_script(_WRITE)
        self._deleting = self._redis.register_script(_DELETE)
        self._sweeping = self._redis.register_script(_SWEEP)
        self._taking = self._redis.register_script(_TAKE)
        self._renewing = self._redis.register_script(_RENEW)
        self._releasing = self._redis.register_script(_RELEASE)
        self._renewal = KeyedLocks()
        """Has one lock: while claims are renewed none is given back, which would be taken again."""

    def _key(self, session_id: str, kind: str = "content") -> str:
        return f"{self._prefix}{kind}:{check_session_id(session_id)}"

    def _keys(self, session_id: str) -> tuple[str, str, str, str]:
        state = self._key(session_id, "state")
        return self._key(session_id), state, self._versions, self._changes

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        content, version = await self._outage.run(partial(self._read, session_id))
        if content is None or version is None:
            raise SessionNotFound(session_id=session_id)
        if content.startswith(GZIP):
            content = await in_thread_if(len(content) > LARGE, _unpack, session_id, content)
        return content, (int(version),)

    async def _read(self, session_id: str) -> tuple[bytes | None, bytes | None]:
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.get(self._key(session_id))
        pipeline.hget(self._key(session_id, "state"), "version")
        content, version = await pipeline.execute()
        return content, version

    async def version(self, session_id: str) -> tuple[int, ...]:
        key = self._key(session_id, "state")
        version = await self._outage.run(lambda: self._redis.hget(key, "version"))
        if version is None:
            raise SessionNotFound(session_id=session_id)
        return (int(version),)

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        found = await self._outage.run(partial(self._read_begins, session_ids, size))
        return await in_thread(_heads, session_ids, found, size)

    async def _read_begins(self, session_ids: Sequence[str], size: int) -> list[Any]:
        """Return the begin of each content, and whether there is one."""
        pipeline = self._redis.pipeline(transaction=False)
        for each in session_ids:
            pipeline.getrange(self._key(each), 0, size + PACKING - 1)
            pipeline.exists(self._key(each))
        found: list[Any] = await pipeline.execute()
        return found

    async def _write(
        self, session_id: str, parts: Iterable[bytes], expected: Expected, lock: str = ""
    ) -> tuple[int, ...]:
        keys = (*self._keys(session_id), self._ends, self._key(session_id, "lock"))
        content = b"".join(parts)
        if self._compress:
            content = await in_thread_if(len(content) > LARGE, gzip.compress, content, 6)
        claim = self._claims.get(session_id, "")
        nonce = secrets.token_hex(8)
        arguments = (session_id, nonce, expected, claim, self._retention_ms, content, lock)
        answer = await self._outage.run(lambda: self._writing(keys, arguments))
        if answer == b"exists":
            raise SessionExists(session_id=session_id)
        if answer == b"changed":
            raise SessionChanged
        if answer == b"lost":
            raise claim_lost(session_id)
        return (int(answer),)

    async def delete(self, session_id: str) -> None:
        keys = (*self._keys(session_id), self._key(session_id, "deleted"))
        claim = self._claims.get(session_id, "")
        arguments = (session_id, secrets.token_hex(8), claim, DELETED_SECONDS)
        answer = await self._outage.run(lambda: self._deleting(keys, arguments))
        if answer == b"missing":
            raise SessionNotFound(session_id=session_id)
        if answer == b"lost":
            raise claim_lost(session_id)

    async def entries(self) -> list[Entry]:
        await self.generation()
        versions = await self._outage.run(lambda: self._redis.hgetall(self._versions))
        return await in_thread(_entries, versions)

    async def generation(self) -> object | None:
        keys = (self._ends, f"{self._prefix}content:", self._versions, self._changes)
        changes: bytes | None = await self._outage.run(lambda: self._sweeping(keys))
        return changes

    async def aclose(self) -> None:
        await super().aclose()
        await self._redis.aclose()

    async def _take(
        self, session_id: str, lease: Lease, token: str, seconds: float, *, may_lapse: bool
    ) -> tuple[int, ...] | None:
        keys = [self._key(session_id, kind) for kind in (lease, "content", "state")]
        arguments = (token, int(seconds * 1000), int(lease == "claim"), int(may_lapse))
        answer = await self._outage.run(lambda: self._taking(keys, arguments))
        if answer is None:
            return None
        if answer == b"lapsed":
            raise ClaimLapsed
        return (int(answer),) if answer else ()

    async def _end(self, session_id: str, lease: Lease, token: str) -> None:
        keys = (self._key(session_id, lease), self._key(session_id, "state"))
        renewal = self._renewal.holding(self.name) if lease == "claim" else nullcontext()
        async with renewal:
            await self._outage.run(lambda: self._releasing(keys, (token,)))

    async def _renew(self) -> Collection[str]:
        async with self._renewal.holding(self.name):
            claims = dict(self._claims)
            keys = [
                self._key(each, kind) for each in claims for kind in ("claim", "content", "state")
            ]
            arguments = (int(self._lease_seconds * 1000), *claims.values())
            answers = await self._outage.run(lambda: self._renewing(keys, arguments))
        return [each for each, is_ours in zip(claims, answers, strict=True) if not is_ours]


def _unpack(session_id: str, content: bytes, size: int = 0) -> bytes:
    """Return what was packed, or its first bytes."""
    try:
        if size:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, size)
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SessionUnreadable(
            session_id=session_id, reason=f"it cannot be unpacked: {error}"
        ) from error


def _heads(
    session_ids: Sequence[str],
    found: Sequence[Any],
    size: int,
) -> list[bytes | MochiError]:
    """Return the heads, from what ``_read_begins`` has found."""
    pairs = zip(session_ids, found[::2], found[1::2], strict=True)
    return [
        _head(each, begin, size) if exists else SessionNotFound(session_id=each)
        for each, begin, exists in pairs
    ]


def _head(session_id: str, begin: bytes, size: int) -> bytes | MochiError:
    try:
        return _unpack(session_id, begin, size) if begin.startswith(GZIP) else begin[:size]
    except SessionUnreadable as error:
        return error


def _entries(versions: Mapping[bytes, bytes]) -> list[Entry]:
    entries = []
    for session_id, value in versions.items():
        version, modified, size = map(int, value.split())
        entries.append(Entry(session_id.decode(), (version,), modified, size=size))
    return entries
