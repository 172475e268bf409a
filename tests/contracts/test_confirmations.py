"""What every broker of confirmations promises, over every cache and layer that the server uses."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from chat.confirmations.channel_layer import ChannelLayerConfirmations
from mochi_project.settings import caches_of, channel_layers_of
from mochi_server.chat.confirmations import (
    ConfirmationBroker,
    ConfirmationDecision,
    ConfirmationRequest,
    LocalConfirmations,
)
from mochi_server.config import load_settings
from mochi_server.core.ids import new_confirmation_id
from mochi_server.errors import ConfirmationNotFound, ToolConfirmationTimeout
from tests.support.redis import PROGRAM, running_redis

SHARED = ["memory", "folder", "redis", "redis lists"]
YES = ConfirmationDecision(approved=True)
NO = ConfirmationDecision(approved=False, reason="not today")


def question(session_id: str = "one", **fields: Any) -> ConfirmationRequest:
    values = {
        "confirmation_id": new_confirmation_id(),
        "session_id": session_id,
        "tool_name": "add",
        "tool_source": "directory",
        "arguments": {"a": 1, "text": "é\u2028"},
        "call_index": 0,
        "tool_call_id": "call_1",
        "queue_position": 1,
        "queue_total": 1,
        "asked_at": "2026-01-15T10:30:00.000000Z",
        "expires_at": "2026-01-15T10:35:00.000000Z",
        **fields,
    }
    return ConfirmationRequest(**values)


def settings_of(kind: str, folder: Path, redis_url: str | None) -> tuple[Any, Any]:
    """``CACHES`` and ``CHANNEL_LAYERS`` of a kind."""
    storage = "memory" if kind == "memory" else "json"
    mochi = load_settings(data_dir=folder, session_storage=storage, redis_url=redis_url)
    layers = channel_layers_of(mochi)
    if kind == "redis lists":
        layers["default"]["BACKEND"] = "channels_redis.core.RedisChannelLayer"
    return caches_of(mochi), layers


class Sides:
    """Who asks and who decides: the same broker, or two as if of two processes."""

    def __init__(self, asking: ConfirmationBroker, deciding: ConfirmationBroker) -> None:
        self.asking = asking
        self.deciding = deciding

    async def aclose(self) -> None:
        await self.asking.aclose()
        await self.deciding.aclose()


CASES = [("local", True)] + [(kind, one) for kind in SHARED for one in (True, False)]


@pytest_asyncio.fixture(
    params=CASES, ids=lambda case: f"{case[0]}, {'one process' if case[1] else 'two'}"
)
async def sides(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Any
) -> AsyncIterator[Sides]:
    kind, one = request.param
    if kind == "local":
        local = LocalConfirmations(timeout=60)
        yield Sides(local, local)
        return
    async with AsyncExitStack() as stack:
        url = None
        if kind.startswith("redis"):
            if PROGRAM is None:
                pytest.skip("there is no redis-server")
            url = (await stack.enter_async_context(running_redis(tmp_path))).url
        settings.CACHES, settings.CHANNEL_LAYERS = settings_of(kind, tmp_path, url)
        asking = ChannelLayerConfirmations(timeout=60)
        found = Sides(asking, asking if one else ChannelLayerConfirmations(timeout=60))
        yield found
        await found.aclose()


def short(sides: Sides, seconds: float) -> None:
    """Let questions wait only that long."""
    sides.asking.timeout = seconds


async def ids(sides: Sides, session_id: str = "one") -> list[str]:
    return [each.confirmation_id for each in await sides.deciding.pending(session_id)]


@pytest.mark.parametrize(
    "decision", [YES, NO, ConfirmationDecision(approved=True, arguments={"a": [1, None]})]
)
async def test_the_decision_reaches_who_asked(sides: Sides, decision: ConfirmationDecision):
    asked = question()
    async with sides.asking.ask(asked) as pending:
        await sides.deciding.decide("one", asked.confirmation_id, decision)
        with anyio.fail_after(60):
            assert await pending.decision() == decision


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_jump_of_the_wall_clock_leaves_questions_open(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, hours: float
):
    clock = time.time
    asked = question()
    async with sides.asking.ask(asked) as pending:
        monkeypatch.setattr(time, "time", lambda: clock() + hours * 3600)
        assert await ids(sides) == [asked.confirmation_id]
        await sides.deciding.decide("one", asked.confirmation_id, YES)
        with anyio.fail_after(60):
            assert await pending.decision() == YES
        monkeypatch.undo()


async def test_arguments_may_be_megabytes(sides: Sides):
    decision = ConfirmationDecision(approved=True, arguments={"text": "x" * 3_000_000})
    asked = question()
    async with sides.asking.ask(asked) as pending:
        await sides.deciding.decide("one", asked.confirmation_id, decision)
        with anyio.fail_after(60):
            assert await pending.decision() == decision


async def test_a_decision_may_come_before_anybody_waits_for_it(sides: Sides):
    asked = question()
    async with sides.asking.ask(asked) as pending:
        await sides.deciding.decide("one", asked.confirmation_id, NO)
        assert await ids(sides) == []
        with anyio.fail_after(60):
            assert await pending.decision() == NO


async def test_the_first_decision_counts(sides: Sides):
    asked = question()
    async with sides.asking.ask(asked) as pending:
        outcomes = await asyncio.gather(
            *(
                side.decide(
                    "one", asked.confirmation_id, ConfirmationDecision(approved=True, reason=str(n))
                )
                for n, side in enumerate([sides.deciding, sides.asking] * 10)
            ),
            return_exceptions=True,
        )
        won = [number for number, outcome in enumerate(outcomes) if outcome is None]
        assert len(won) == 1
        assert {type(each) for each in outcomes if each is not None} == {ConfirmationNotFound}
        with anyio.fail_after(60):
            assert (await pending.decision()).reason == str(won[0])
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide("one", asked.confirmation_id, YES)


@pytest.mark.parametrize("name", ["conf_0", "", "..", "a b", "x" * 300, "é", "a/b", "question:x"])
async def test_an_unknown_confirmation_is_not_found(sides: Sides, name: str):
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide("one", name, YES)
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide(name, "conf_1", YES)
    assert await sides.deciding.pending(name) == []


async def test_another_session_cannot_decide(sides: Sides):
    asked = question("one")
    async with sides.asking.ask(asked) as pending:
        with pytest.raises(ConfirmationNotFound):
            await sides.deciding.decide("two", asked.confirmation_id, YES)
        assert await ids(sides, "two") == []
        await sides.deciding.decide("one", asked.confirmation_id, NO)
        with anyio.fail_after(60):
            assert await pending.decision() == NO


async def test_what_is_pending_is_listed_oldest_first_and_whole(sides: Sides):
    asked = [question(arguments={"n": n}, agent_name="coder" if n else None) for n in range(3)]
    async with AsyncExitStack() as stack:
        for each in asked:
            await stack.enter_async_context(sides.asking.ask(each))
        async with sides.asking.ask(question("two")):
            assert await sides.deciding.pending("one") == asked
        await sides.deciding.decide("one", asked[1].confirmation_id, YES)
        assert await sides.deciding.pending("one") == [asked[0], asked[2]]
    assert await ids(sides) == []


async def test_nobody_decides_in_time(sides: Sides):
    short(sides, 0.3)
    asked = question()
    async with sides.asking.ask(asked) as pending:
        with anyio.fail_after(60), pytest.raises(ToolConfirmationTimeout):
            await pending.decision()
        assert await ids(sides) == []
        with pytest.raises(ToolConfirmationTimeout):
            await sides.deciding.decide("one", asked.confirmation_id, YES)
    with pytest.raises(ToolConfirmationTimeout):
        await sides.deciding.decide("one", asked.confirmation_id, YES)
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide("two", asked.confirmation_id, YES)


async def test_a_decision_and_the_end_of_the_time_never_both_win(sides: Sides):
    short(sides, 0.25)

    async def once(number: int) -> bool:
        asked = question(f"s{number}")
        async with sides.asking.ask(asked) as pending:
            await anyio.sleep(random.uniform(0.2, 0.27))
            try:
                await sides.deciding.decide(f"s{number}", asked.confirmation_id, YES)
                decided = True
            except (ToolConfirmationTimeout, ConfirmationNotFound):
                decided = False
            try:
                with anyio.fail_after(60):
                    got = await pending.decision() == YES
            except ToolConfirmationTimeout:
                got = False
        assert decided == got
        return decided

    async def waiter(number: int) -> None:
        """The waiter waits at the same time, as a turn does."""
        asked = question(f"w{number}")
        async with sides.asking.ask(asked) as pending:
            waiting = asyncio.ensure_future(pending.decision())
            await anyio.sleep(random.uniform(0.2, 0.27))
            decided = not isinstance(
                (
                    await asyncio.gather(
                        sides.deciding.decide(f"w{number}", asked.confirmation_id, YES),
                        return_exceptions=True,
                    )
                )[0],
                Exception,
            )
            with anyio.fail_after(60):
                (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert decided == (result == YES), result

    await asyncio.gather(*map(once, range(20)), *map(waiter, range(20)))


async def test_a_turn_that_ends_forgets_its_question(sides: Sides):
    asked = question()
    registered = asyncio.Event()

    async def turn() -> None:
        async with sides.asking.ask(asked) as pending:
            registered.set()
            await pending.decision()

    running = asyncio.ensure_future(turn())
    with anyio.fail_after(60):
        await registered.wait()
    assert await ids(sides) == [asked.confirmation_id]
    running.cancel()
    with anyio.fail_after(60):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert await ids(sides) == []
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide("one", asked.confirmation_id, YES)


async def test_a_turn_that_is_cancelled_at_any_moment_leaves_nothing(sides: Sides):
    asked = [question(f"s{number}") for number in range(40)]

    async def turn(request: ConfirmationRequest) -> None:
        async with sides.asking.ask(request) as pending:
            await pending.decision()

    for number, each in enumerate(asked):
        running = asyncio.ensure_future(turn(each))
        for _ in range(number):
            await asyncio.sleep(0)
        await anyio.sleep(number * 0.0001)
        running.cancel()
        with anyio.fail_after(60):
            await asyncio.gather(running, return_exceptions=True)
        assert await ids(sides, each.session_id) == []
        with pytest.raises(ConfirmationNotFound):
            await sides.deciding.decide(each.session_id, each.confirmation_id, YES)


async def test_many_at_once_are_each_decided_once(sides: Sides):
    asked = [question(f"s{number % 50}", call_index=number) for number in range(200)]
    ready = [asyncio.Event() for _ in asked]

    async def turn(request: ConfirmationRequest) -> tuple[int, str | None]:
        async with sides.asking.ask(request) as pending:
            ready[request.call_index].set()
            return request.call_index, (await pending.decision()).reason

    turns = [asyncio.ensure_future(turn(each)) for each in asked]
    with anyio.fail_after(60):
        await asyncio.gather(*(each.wait() for each in ready))
        order = random.sample(asked, len(asked))

        async def client(some: list[ConfirmationRequest]) -> None:
            for each in some:
                decision = ConfirmationDecision(approved=True, reason=str(each.call_index))
                await sides.deciding.decide(each.session_id, each.confirmation_id, decision)

        await asyncio.gather(*(client(order[start::4]) for start in range(4)))
        assert await asyncio.gather(*turns) == [(number, str(number)) for number in range(200)]
    for number in range(50):
        assert await ids(sides, f"s{number}") == []


async def test_closing_may_be_repeated(sides: Sides):
    async with sides.asking.ask(question()):
        pass
    await sides.aclose()
    await sides.aclose()
