"""What asking promises, over every store that the server uses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.chat.confirmations import ConfirmationDecision, ConfirmationStore
from mochi_server.chat.confirmations.asking import AskedCall
from mochi_server.chat.confirmations.files import FileConfirmationStore
from mochi_server.chat.confirmations.memory import MemoryConfirmationStore
from mochi_server.chat.confirmations.redis import RedisConfirmationStore
from mochi_server.errors import ConfirmationNotFound, ToolConfirmationTimeout
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.protocol.messages import ToolCall
from tests.support.confirmations import asking_in_memory
from tests.support.redis import PROGRAM, running_redis

YES = ConfirmationDecision(approved=True)
NO = ConfirmationDecision(approved=False, reason="not today")
ARGUMENTS = {"a": 1, "text": "é\u2028"}


class Pending:
    """A call about which a person is asked."""

    def __init__(self, session_id: str, steps: Any, required: ConfirmationRequired) -> None:
        self.session_id = session_id
        self.confirmation_id = required.confirmation_id
        self._steps = steps

    async def decision(self) -> ConfirmationDecision:
        """The decision, as whoever made it has written it."""
        decision = await anext(self._steps)
        assert isinstance(decision, ConfirmationDecision)
        if decision.is_expired:
            raise ToolConfirmationTimeout(confirmation_id=self.confirmation_id)
        return replace(decision, decided_at=None)


class Sides:
    """Who asks and who decides: the same store, or two as if of two processes."""

    def __init__(self, asking: ConfirmationStore, deciding: ConfirmationStore) -> None:
        self.asking = asking
        self.deciding = deciding
        self.timeout = 60.0

    @asynccontextmanager
    async def ask(
        self,
        session_id: str = "one",
        *,
        number: int = 0,
        arguments: Any = None,
        agent: str | None = None,
    ) -> AsyncIterator[Pending]:
        """Ask as a turn does, which ends on leaving."""
        confirmations = replace(
            asking_in_memory(session_id), store=self.asking, timeout=self.timeout, agent_name=agent
        )
        call = ToolCall(id=f"call_{number}", name="add", arguments={})
        asked = AskedCall(call, number, ARGUMENTS if arguments is None else arguments, "directory")
        steps = confirmations.ask(asked, position=1, total=1)
        try:
            required = await anext(steps)
            assert isinstance(required, ConfirmationRequired)
            yield Pending(session_id, steps, required)
        finally:
            await steps.aclose()
            await confirmations.close()

    async def aclose(self) -> None:
        await self.asking.aclose()
        await self.deciding.aclose()


CASES = [("memory", True), ("files", True), ("files", False), ("redis", True), ("redis", False)]


@pytest_asyncio.fixture(
    params=CASES, ids=lambda case: f"{case[0]}, {'one process' if case[1] else 'two'}"
)
async def sides(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sides]:
    kind, one = request.param
    async with AsyncExitStack() as stack:
        url = ""
        if kind == "redis":
            if PROGRAM is None:
                pytest.skip("there is no redis-server")
            url = (await stack.enter_async_context(running_redis(tmp_path))).url

        def make() -> ConfirmationStore:
            if kind == "memory":
                return MemoryConfirmationStore()
            if kind == "files":
                return FileConfirmationStore(tmp_path / "confirmations")
            return RedisConfirmationStore(url)

        asking = make()
        sides = Sides(asking, asking if one else make())
        yield sides
        await sides.aclose()


async def decide(
    store: ConfirmationStore, session_id: str, name: str, decision: ConfirmationDecision
) -> None:
    await store.decide(name, decision, session_id=session_id)


def short(sides: Sides, seconds: float) -> None:
    """Let questions wait only that long."""
    sides.timeout = seconds


async def ids(sides: Sides, session_id: str = "one") -> list[str]:
    return [each.confirmation_id for each in await sides.deciding.pending(session_id=session_id)]


@pytest.mark.parametrize(
    "decision", [YES, NO, ConfirmationDecision(approved=True, arguments={"a": [1, None]})]
)
async def test_the_decision_reaches_who_asked(sides: Sides, decision: ConfirmationDecision):
    async with sides.ask() as pending:
        await decide(sides.deciding, "one", pending.confirmation_id, decision)
        with anyio.fail_after(60):
            assert await pending.decision() == decision


async def test_arguments_may_be_megabytes(sides: Sides):
    decision = ConfirmationDecision(approved=True, arguments={"text": "x" * 3_000_000})
    async with sides.ask() as pending:
        await decide(sides.deciding, "one", pending.confirmation_id, decision)
        with anyio.fail_after(60):
            assert await pending.decision() == decision


async def test_a_decision_may_come_before_anybody_waits_for_it(sides: Sides):
    async with sides.ask() as pending:
        await decide(sides.deciding, "one", pending.confirmation_id, NO)
        assert await ids(sides) == []
        with anyio.fail_after(60):
            assert await pending.decision() == NO


async def test_the_first_decision_counts(sides: Sides):
    async with sides.ask() as pending:
        outcomes = await asyncio.gather(
            *(
                decide(side, "one", pending.confirmation_id, replace(YES, reason=str(n)))
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
        await decide(sides.deciding, "one", pending.confirmation_id, YES)


@pytest.mark.parametrize("name", ["conf_0", "", "..", "a b", "x" * 300, "é", "a/b", "question:x"])
async def test_an_unknown_confirmation_is_not_found(sides: Sides, name: str):
    with pytest.raises(ConfirmationNotFound):
        await decide(sides.deciding, "one", name, YES)
    with pytest.raises(ConfirmationNotFound):
        await decide(sides.deciding, name, "conf_1", YES)
    assert await sides.deciding.pending(session_id=name) == []


async def test_another_session_cannot_decide(sides: Sides):
    async with sides.ask("one") as pending:
        with pytest.raises(ConfirmationNotFound):
            await decide(sides.deciding, "two", pending.confirmation_id, YES)
        assert await ids(sides, "two") == []
        await decide(sides.deciding, "one", pending.confirmation_id, NO)
        with anyio.fail_after(60):
            assert await pending.decision() == NO


async def test_what_is_pending_is_listed_oldest_first_and_whole(sides: Sides):
    async with AsyncExitStack() as stack:
        asked = [
            await stack.enter_async_context(
                sides.ask(number=n, arguments={"n": n}, agent="coder" if n else None)
            )
            for n in range(3)
        ]
        async with sides.ask("two"):
            pending = await sides.deciding.pending(session_id="one")
            assert [each.confirmation_id for each in pending] == [
                each.confirmation_id for each in asked
            ]
            assert [(each.arguments, each.agent_name) for each in pending] == [
                ({"n": 0}, None),
                ({"n": 1}, "coder"),
                ({"n": 2}, "coder"),
            ]
        await decide(sides.deciding, "one", asked[1].confirmation_id, YES)
        assert await sides.deciding.pending(session_id="one") == [pending[0], pending[2]]
    assert await ids(sides) == []


async def test_nobody_decides_in_time(sides: Sides):
    short(sides, 0.3)
    async with sides.ask() as pending:
        with anyio.fail_after(60), pytest.raises(ToolConfirmationTimeout):
            await pending.decision()
        assert await ids(sides) == []
        with pytest.raises(ToolConfirmationTimeout):
            await decide(sides.deciding, "one", pending.confirmation_id, YES)
    with pytest.raises(ToolConfirmationTimeout):
        await decide(sides.deciding, "one", pending.confirmation_id, YES)
    with pytest.raises(ConfirmationNotFound):
        await decide(sides.deciding, "two", pending.confirmation_id, YES)


async def test_a_decision_and_the_end_of_the_time_never_both_win(sides: Sides):
    short(sides, 0.25)

    async def once(number: int) -> bool:
        async with sides.ask(f"s{number}") as pending:
            await anyio.sleep(random.uniform(0.2, 0.27))
            try:
                await decide(sides.deciding, f"s{number}", pending.confirmation_id, YES)
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
        async with sides.ask(f"w{number}") as pending:
            waiting = asyncio.ensure_future(pending.decision())
            await anyio.sleep(random.uniform(0.2, 0.27))
            decided = not isinstance(
                (
                    await asyncio.gather(
                        decide(sides.deciding, f"w{number}", pending.confirmation_id, YES),
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
    registered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def turn() -> None:
        async with sides.ask() as pending:
            registered.set_result(pending.confirmation_id)
            await pending.decision()

    running = asyncio.ensure_future(turn())
    with anyio.fail_after(60):
        name = await registered
    assert await ids(sides) == [name]
    running.cancel()
    with anyio.fail_after(60):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert await ids(sides) == []
    with pytest.raises(ConfirmationNotFound):
        await decide(sides.deciding, "one", name, YES)
    (record,) = await sides.deciding.history()
    assert (record.confirmation.confirmation_id, record.ran) == (name, None)
    assert not record.decision.approved


async def test_a_turn_that_is_cancelled_at_any_moment_leaves_nothing(sides: Sides):
    async def turn(session_id: str) -> None:
        async with sides.ask(session_id) as pending:
            await pending.decision()

    for number in range(40):
        running = asyncio.ensure_future(turn(f"s{number}"))
        for _ in range(number):
            await asyncio.sleep(0)
        await anyio.sleep(number * 0.0001)
        running.cancel()
        with anyio.fail_after(60):
            await asyncio.gather(running, return_exceptions=True)
        assert await ids(sides, f"s{number}") == []
    for record in await sides.deciding.history():
        confirmation = record.confirmation
        with pytest.raises(ConfirmationNotFound):
            await decide(sides.deciding, confirmation.session_id, confirmation.confirmation_id, YES)


async def test_many_at_once_are_each_decided_once(sides: Sides):
    asked: dict[int, Pending] = {}
    ready = [asyncio.Event() for _ in range(200)]

    async def turn(number: int) -> tuple[int, str | None]:
        async with sides.ask(f"s{number % 50}", number=number) as pending:
            asked[number] = pending
            ready[number].set()
            return number, (await pending.decision()).reason

    turns = [asyncio.ensure_future(turn(number)) for number in range(200)]
    with anyio.fail_after(60):
        await asyncio.gather(*(each.wait() for each in ready))
        order = random.sample(sorted(asked), len(asked))

        async def client(some: list[int]) -> None:
            for number in some:
                pending = asked[number]
                decision = replace(YES, reason=str(number))
                await decide(sides.deciding, pending.session_id, pending.confirmation_id, decision)

        await asyncio.gather(*(client(order[start::4]) for start in range(4)))
        assert await asyncio.gather(*turns) == [(number, str(number)) for number in range(200)]
    for number in range(50):
        assert await ids(sides, f"s{number}") == []


async def test_closing_may_be_repeated(sides: Sides):
    async with sides.ask():
        pass
    await sides.aclose()
    await sides.aclose()
