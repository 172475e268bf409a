"""Confirmations in Redis: lost connections, a Redis that has forgotten everything, bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from mochi_server.chat.confirmations import ConfirmationDecision
from mochi_server.chat.confirmations import redis as module
from mochi_server.chat.confirmations.asking import AskedCall
from mochi_server.chat.confirmations.redis import RedisConfirmationStore
from mochi_server.errors import ConfirmationNotFound, ConfirmationUnavailable
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.protocol.messages import ToolCall
from tests.support.confirmations import NO, YES, asking_in_memory, make_confirmation
from tests.support.redis import needs_redis


@asynccontextmanager
async def stores(*urls: str, **options: Any) -> AsyncIterator[list[RedisConfirmationStore]]:
    made = [RedisConfirmationStore(url, **options) for url in urls]
    try:
        yield made
    finally:
        for store in made:
            await store.aclose()


async def decide_in_the_end(store: RedisConfirmationStore, name: str) -> None:
    """Decide it as soon as that works."""
    with anyio.fail_after(30):
        while True:
            try:
                await store.decide(name, YES)
            except (ConfirmationUnavailable, ConfirmationNotFound):  # noqa: PERF203
                await anyio.sleep(0.02)
            else:
                return


async def begin_to_wait(store: RedisConfirmationStore, *names: str) -> list[asyncio.Future[Any]]:
    """Return tasks that wait for decisions and know that there is none yet."""
    waiting = [asyncio.ensure_future(store.wait(name)) for name in names]
    with anyio.fail_after(30):
        while len(store._watchers) < len(names):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    for _ in range(5):
        assert await store.check()
    return waiting


@needs_redis
async def test_without_redis_nothing_can_be_asked_or_decided(redis):
    async with stores(redis.url) as [store]:
        await store.put(asked := make_confirmation())
        name = asked.confirmation_id
        await redis.stop()
        with anyio.fail_after(30):
            for step in (
                store.put(make_confirmation()),
                store.decide(name, YES),
                store.decision(name),
                store.consume(name),
                store.pending(),
                store.history(),
                store.wait(name),
            ):
                with pytest.raises(ConfirmationUnavailable):
                    await step
            assert not await store.check()


@needs_redis
@pytest.mark.parametrize("count", [1, 200])
async def test_a_waiter_goes_on_when_redis_has_forgotten_everything(redis, count):
    async with stores(redis.url, redis.url) as [asking, deciding]:
        asked = [make_confirmation(minutes=number) for number in range(count)]
        for each in asked:
            await asking.put(each)
        name = asked[0].confirmation_id
        waiting = await begin_to_wait(asking, name, name)
        await redis.stop()
        await asyncio.sleep(0.1)
        await redis.start()
        await decide_in_the_end(deciding, name)
        with anyio.fail_after(30):
            assert [(await each).approved for each in waiting] == [True, True]
        assert await deciding.pending() == asked[1:]


@needs_redis
async def test_who_begins_to_wait_while_redis_is_away_goes_on(redis):
    """Redis went away just after the confirmation was announced, and has forgotten it."""
    async with stores(redis.url, redis.url) as [store, deciding]:
        asking = replace(asking_in_memory(), store=store)
        call = ToolCall(id="call_1", name="add", arguments={})
        steps = asking.ask(AskedCall(call, 0, {}, "directory"), position=1, total=1)
        required = await anext(steps)
        assert isinstance(required, ConfirmationRequired)
        await redis.stop()
        waiting = asyncio.ensure_future(anext(steps))
        await redis.start()
        await decide_in_the_end(deciding, required.confirmation_id)
        with anyio.fail_after(30):
            decision = await waiting
        assert isinstance(decision, ConfirmationDecision)
        assert decision.approved
        await steps.aclose()


@needs_redis
async def test_a_waiter_goes_on_after_a_lost_connection(redis, line):
    async with stores(line.url, redis.url) as [asking, deciding]:
        one, two = make_confirmation(), make_confirmation(minutes=1)
        for each in (one, two):
            await asking.put(each)
        waiting = await begin_to_wait(asking, one.confirmation_id, two.confirmation_id)
        line.cut()
        await deciding.decide(one.confirmation_id, NO)
        await deciding.consume(one.confirmation_id)
        await asyncio.sleep(0.1)
        line.mend()
        with anyio.fail_after(30):
            assert not (await waiting[0]).approved
        await deciding.decide(two.confirmation_id, YES)
        with anyio.fail_after(30):
            assert (await waiting[1]).approved


@needs_redis
async def test_a_decision_counts_though_its_answer_is_lost(redis, line):
    async with stores(line.url) as [store]:
        first, asked = make_confirmation(), make_confirmation()
        for each in (first, asked):
            await store.put(each)
        await store.decide(first.confirmation_id, YES)
        line.break_at = 2  # what is stored, then the decision
        assert await store.decide(asked.confirmation_id, YES) == asked
        assert line.break_at == 0
        with pytest.raises(ConfirmationNotFound):
            await store.decide(asked.confirmation_id, YES)


@needs_redis
async def test_a_decision_counts_though_it_is_acted_on_before_its_answer_comes(redis, line):
    async with stores(line.url, redis.url) as [deciding, waiting]:
        first, asked = make_confirmation(), make_confirmation()
        for each in (first, asked):
            await waiting.put(each)
        await deciding.decide(first.confirmation_id, YES)
        line.break_at = 2  # what is stored, then the decision
        line.before_break = lambda: waiting.consume(asked.confirmation_id)
        assert await deciding.decide(asked.confirmation_id, YES) == asked
        assert line.break_at == 0
        assert not await deciding._settle(asked, YES)  # another one, which comes later
        assert [each.confirmation for each in await waiting.history()] == [asked]


@needs_redis
async def test_who_has_not_looked_for_long_reads_everything_again(redis, monkeypatch):
    monkeypatch.setattr(module, "MAX_CHANGES", 10)
    async with stores(redis.url, redis.url) as [asking, other]:
        await asking.put(gone := make_confirmation())
        async with other.watch() as changes:
            other.poll_seconds = 0.01
            async with other._lock:
                kept = [make_confirmation(minutes=number) for number in range(1, 300)]
                for each in kept:
                    await asking.put(each)
                await asking.decide(gone.confirmation_id, YES)
                await asking.consume(gone.confirmation_id)
            with anyio.fail_after(30):
                told = [await anext(changes) for _ in range(300)]
        assert sum(change.kind == "asked" for change in told) == 299
        [decided] = [change for change in told if change.kind == "decided"]
        assert decided.confirmation == gone
        assert decided.decision.approved
        assert await other.pending() == kept


@needs_redis
async def test_the_history_is_bounded(redis):
    async with stores(redis.url, max_records=5) as [store]:
        asked = [make_confirmation(minutes=number) for number in range(12)]
        for each in asked:
            await store.record(each, YES)
        assert [each.confirmation for each in await store.history()] == asked[:6:-1]
        assert await store.history(limit=0) == []
        with pytest.raises(ConfirmationNotFound):
            await store.decision(asked[0].confirmation_id)


@needs_redis
async def test_what_cannot_be_read_hides_nothing_and_is_never_an_approval(redis, caplog):
    async with stores(redis.url) as [store]:
        await store.put(asked := make_confirmation())
        name = asked.confirmation_id
        for value in ("[1", '{"confirmation_id":1}', "[" * 100_000):
            await store._redis.hset(module.ASKED, f"x{len(value)}", value)
        assert await store.pending() == [asked]
        assert "cannot be read" in caplog.text
        await store._redis.hset(module.DECIDED, name, "no decision at all")
        decision = await store.decision(name)
        assert not decision.approved


async def test_a_redis_that_says_nothing_hangs_nobody(monkeypatch):
    monkeypatch.setattr("mochi_server.core.redis.ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        async with stores(url) as [store]:
            with anyio.fail_after(30), pytest.raises(ConfirmationUnavailable):
                await store.put(make_confirmation())
