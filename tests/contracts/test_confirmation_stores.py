"""What every store of confirmations promises, in one process and, where it can, between two.

And what turns promise that ask over it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

from mochi_server.chat.confirmations.asking import AskedCall
from mochi_server.chat.confirmations.confirmation import ConfirmationDecision, StoredConfirmation
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.chat.confirmations.store import ConfirmationStore
from mochi_server.core.caller import Caller
from mochi_server.core.clock import timestamp
from mochi_server.errors import ConfirmationNotFound, ToolConfirmationTimeout
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.protocol.messages import ToolCall
from tests.contracts.conftest import NewState
from tests.support.confirmations import (
    NO,
    START,
    YES,
    Clock,
    asking_in_memory,
    make_confirmation,
)

SOON = timestamp(START + timedelta(minutes=5))


class Sides:
    """Who asks and who decides: the same store, or two as if of two processes."""

    def __init__(self, asking: ConfirmationStore, deciding: ConfirmationStore) -> None:
        self.asking = asking
        self.deciding = deciding


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["one process", "two processes"])
async def sides(request: Any, new_state: NewState, clock: Clock) -> AsyncIterator[Sides]:
    asking = deciding = StateConfirmationStore(new_state(), clock=clock)
    if request.param == "two processes":
        deciding = StateConfirmationStore(new_state(), clock=clock)
    sides = Sides(asking, deciding)
    yield sides
    await sides.asking.aclose()
    await sides.deciding.aclose()
    await sides.deciding.aclose()


async def ids(store: ConfirmationStore, **filters: Any) -> list[str]:
    return [each.confirmation_id for each in await store.pending(**filters)]


@pytest.mark.parametrize(
    "decision",
    [
        YES,
        NO,
        replace(YES, arguments={"a": [1, None, 2**70]}, remember="tool", rule_id="rule_1"),
        replace(YES, arguments={"text": "x" * 3_000_000}),
    ],
    ids=["yes", "no", "changed", "megabytes"],
)
async def test_a_decision_reaches_who_waits(sides: Sides, decision: ConfirmationDecision):
    asked = make_confirmation()
    await sides.asking.put(asked)
    waiting = asyncio.ensure_future(sides.asking.wait(asked.confirmation_id))
    assert await sides.deciding.decision(asked.confirmation_id) is None
    decided = await sides.deciding.decide(asked.confirmation_id, decision, session_id="one")
    assert decided == asked
    with anyio.fail_after(30):
        assert await waiting == replace(decision, decided_at=timestamp(START))


async def test_a_decision_may_come_before_anybody_waits(sides: Sides):
    asked = make_confirmation()
    await sides.asking.put(asked)
    await sides.deciding.decide(asked.confirmation_id, NO)
    with anyio.fail_after(30):
        assert (await sides.asking.wait(asked.confirmation_id)).reason == "not today"
    assert await ids(sides.asking) == await ids(sides.deciding) == []


async def test_the_first_decision_counts(sides: Sides):
    asked = make_confirmation()
    await sides.asking.put(asked)
    outcomes = await asyncio.gather(
        *(
            side.decide(asked.confirmation_id, replace(YES, reason=str(number)))
            for number, side in enumerate([sides.deciding, sides.asking] * 10)
        ),
        return_exceptions=True,
    )
    won = [number for number, outcome in enumerate(outcomes) if outcome == asked]
    assert len(won) == 1
    lost = {type(each) for number, each in enumerate(outcomes) if number not in won}
    assert lost == {ConfirmationNotFound}
    decision = await sides.asking.decision(asked.confirmation_id)
    assert decision is not None
    assert decision.reason == str(won[0])


@pytest.mark.parametrize(
    "name", ["conf_0", "", "..", "a b", "x" * 300, "é", "a/b", ".", "\0", "*", "x:y"]
)
async def test_an_unknown_confirmation_is_not_found(sides: Sides, name: str):
    await sides.asking.put(make_confirmation())
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide(name, YES)
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide("conf_1", YES, session_id=name)
    assert await sides.deciding.pending(session_id=name) == []
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decision(name)
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.consume(name)
    with anyio.fail_after(30), pytest.raises(ConfirmationNotFound):
        await sides.deciding.wait(name)
    assert await sides.deciding.history(before=name) == []


async def test_another_session_cannot_decide(sides: Sides):
    asked = make_confirmation("one")
    await sides.asking.put(asked)
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide(asked.confirmation_id, YES, session_id="two")
    assert await ids(sides.deciding, session_id="one") == [asked.confirmation_id]


async def test_storing_again_changes_nothing(sides: Sides):
    asked = make_confirmation()
    await sides.asking.put(asked)
    await sides.deciding.decide(asked.confirmation_id, YES)
    await sides.asking.put(asked)
    assert await ids(sides.asking) == []
    [stored] = await sides.asking.of_run("run_1")
    assert stored.decision is not None


async def test_what_is_pending_is_listed_oldest_first_and_whole(sides: Sides, clock: Clock):
    asked = [
        make_confirmation(
            minutes=minutes, queue_position=position, agent_name=agent, tool_name=tool
        )
        for minutes, position, agent, tool in [
            (2, 1, None, "add"),
            (1, 2, "coder", "write"),
            (1, 1, "coder", "add"),
        ]
    ]
    for each in asked:
        await sides.asking.put(each)
    await sides.asking.put(other := make_confirmation("two", minutes=3))
    latest, second, first = asked
    clock.advance(minutes=10)
    pending = sides.deciding.pending
    assert await pending() == [first, second, latest, other]
    assert await pending(session_id="one") == [first, second, latest]
    assert await pending(agent="coder", tool="write") == [second]
    assert await pending(older_than=timedelta(minutes=8)) == [first, second]
    await sides.deciding.decide(second.confirmation_id, YES)
    assert await pending(session_id="one") == [first, latest]
    assert (await pending())[0].payload() == first.payload()


async def test_nobody_decides_in_time(sides: Sides, clock: Clock):
    asked = make_confirmation(expires_at=SOON)
    await sides.asking.put(asked)
    waiting = asyncio.ensure_future(sides.asking.wait(asked.confirmation_id))
    clock.advance(minutes=5)
    with anyio.fail_after(30):
        decision = await waiting
    assert decision.is_expired
    assert not decision.approved
    for session_id, error in [("one", ToolConfirmationTimeout), ("two", ConfirmationNotFound)]:
        with pytest.raises(error):
            await sides.deciding.decide(asked.confirmation_id, YES, session_id=session_id)
    await sides.asking.consume(asked.confirmation_id)
    for session_id, error in [("one", ToolConfirmationTimeout), ("two", ConfirmationNotFound)]:
        with pytest.raises(error):
            await sides.deciding.decide(asked.confirmation_id, YES, session_id=session_id)


async def test_a_late_decision_is_too_late_though_nobody_has_looked(sides: Sides, clock: Clock):
    asked = make_confirmation(expires_at=SOON)
    await sides.asking.put(asked)
    clock.advance(minutes=5)
    assert await ids(sides.deciding) == []
    with pytest.raises(ToolConfirmationTimeout):
        await sides.deciding.decide(asked.confirmation_id, YES)
    decision = await sides.asking.decision(asked.confirmation_id)
    assert decision is not None
    assert decision.is_expired


async def test_only_what_is_due_expires(sides: Sides, clock: Clock):
    late = make_confirmation(expires_at=timestamp(START + timedelta(hours=1)))
    due = make_confirmation(expires_at=SOON)
    forever = make_confirmation()
    for each in (late, due, forever):
        await sides.asking.put(each)
    assert await sides.deciding.expire_due() == []
    clock.advance(minutes=4)
    assert await sides.deciding.expire_due() == []
    clock.advance(minutes=2)
    assert await sides.deciding.expire_due() == [due]
    assert await sides.asking.expire_due() == []
    clock.advance(hours=2)
    assert await sides.asking.expire_due() == [late]
    clock.advance(days=1000)
    assert await sides.deciding.pending() == [forever]


@pytest.mark.parametrize("looked", [True, False])
@pytest.mark.parametrize("hours", [-6, 6])
async def test_a_time_of_day_that_jumps_changes_no_deadline(
    sides: Sides, clock: Clock, hours: float, *, looked: bool
):
    """Of both stores where both have looked before; else of the one that has asked."""
    asked = make_confirmation(expires_at=SOON)
    await sides.asking.put(asked)
    stores = [sides.asking, sides.deciding] if looked else [sides.asking]
    if looked:
        for store in stores:
            assert await store.pending() == [asked]
    clock.jump(hours=hours)
    clock.advance(minutes=4)
    for store in stores:
        assert await store.expire_due() == []
        assert await store.pending() == [asked]
    clock.advance(minutes=2)
    assert await stores[-1].expire_due() == [asked]


async def test_what_was_asked_before_the_time_of_day_was_set_back_expires(
    sides: Sides, clock: Clock
):
    """Also where a process that starts afterwards finds it."""
    asked = make_confirmation(expires_at=SOON)
    await sides.asking.put(asked)
    clock.jump(hours=-6)
    assert await sides.deciding.pending() == [asked]
    clock.advance(minutes=6)
    assert await sides.deciding.expire_due() == [asked]


async def test_a_decision_that_was_acted_on_is_history(sides: Sides, clock: Clock):
    asked = [make_confirmation(minutes=number) for number in range(5)]
    for each in asked:
        await sides.asking.put(each)
    with pytest.raises(ConfirmationNotFound):
        await sides.asking.consume(asked[0].confirmation_id)
    for each in asked:
        await sides.deciding.decide(each.confirmation_id, YES if each.arguments else NO)
        clock.advance(seconds=1)
        await sides.asking.consume(each.confirmation_id, ran=each.arguments)
    assert await sides.deciding.of_run("run_1") == []
    latest, *older = await sides.deciding.history()
    assert [each.confirmation for each in (latest, *older)] == asked[::-1]
    assert latest.ran == latest.confirmation.arguments
    assert latest.decision == replace(YES, decided_at=timestamp(START + timedelta(seconds=4)))
    assert latest.recorded_at == timestamp(START + timedelta(seconds=5))
    assert latest.payload()["confirmation"] == asked[-1].payload()
    page = await sides.deciding.history(limit=2, before=asked[3].confirmation_id)
    assert [each.confirmation for each in page] == [asked[2], asked[1]]
    assert await sides.deciding.history(before=asked[0].confirmation_id) == []
    for name in (asked[0].confirmation_id, asked[4].confirmation_id):
        assert await sides.deciding.decision(name) is not None
        with pytest.raises(ConfirmationNotFound):
            await sides.asking.decide(name, YES)
        with pytest.raises(ConfirmationNotFound):
            await sides.asking.consume(name)


async def test_a_page_of_the_history_is_full_of_what_its_reader_sees(sides: Sides):
    own = make_confirmation(owner="anna")
    of_others = [make_confirmation(owner="ben", minutes=number) for number in (1, 2)]
    for each in (own, *of_others):
        await sides.asking.record(each, YES)
    page = await sides.deciding.history(limit=1, caller=Caller(name="anna", owner="anna"))
    assert [each.confirmation for each in page] == [own]


async def test_what_a_rule_decides_is_history_at_once(sides: Sides):
    asked = make_confirmation()
    decision = ConfirmationDecision(approved=True, decided_by="policy", rule_id="rule_1")
    await sides.asking.record(asked, decision, ran={})
    [record] = await sides.deciding.history()
    assert record.decision == replace(decision, decided_at=timestamp(START))
    assert record.ran == {}
    assert await sides.deciding.pending() == []


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({"text": "x" * 1_000_000, "n": 1}, "xxx\u2026 (1,000,000 characters)"),
        ({"text": "\U0001f600" * 100_000}, "\U0001f600\u2026 (100,000 characters)"),
        ({"data": {"a": ["x" * 1_000_000]}, "n": 1}, "xxx\u2026 (1,000,011 characters)"),
        ({"x" * 1_000_000: 1}, "xxx\u2026 (1,000,000 characters)"),
        ({f"name_{number}": "x" * 100 for number in range(9_000)}, "(9,000 arguments)"),
    ],
    ids=["text", "escapes", "nested", "name", "many"],
)
async def test_long_arguments_take_little_of_the_history(sides: Sides, arguments: Any, kept: str):
    asked = make_confirmation(arguments=arguments)
    await sides.asking.put(asked)
    await sides.deciding.decide(asked.confirmation_id, YES)
    assert (await sides.deciding.pending(), await sides.asking.of_run("run_1")) == (
        [],
        [StoredConfirmation(asked, replace(YES, decided_at=timestamp(START)))],
    )
    await sides.asking.consume(asked.confirmation_id, ran=arguments)
    [record] = await sides.deciding.history()
    assert record.ran is not None
    assert record.ran == record.confirmation.arguments
    assert len(json.dumps(record.fields())) < 25_000
    assert kept in str(record.ran)
    assert record.ran.get("n") == arguments.get("n")


async def test_a_run_finds_what_it_asked(sides: Sides):
    pending, decided = make_confirmation(minutes=1), make_confirmation()
    for each in (pending, decided, make_confirmation(run_id="run_2")):
        await sides.asking.put(each)
    await sides.deciding.decide(decided.confirmation_id, NO)
    first, second = await sides.asking.of_run("run_1")
    assert (first.confirmation, second.confirmation) == (decided, pending)
    assert first.decision is not None
    assert second.decision is None
    assert await sides.asking.of_run("run_3") == []


async def test_who_watches_is_told_of_everything_once(sides: Sides, clock: Clock):
    await sides.asking.put(before := make_confirmation())
    async with sides.asking.watch() as first, sides.deciding.watch() as second:
        asked = make_confirmation(minutes=1, expires_at=SOON)
        await sides.deciding.put(asked)
        with anyio.fail_after(30):
            for watcher in (first, second):
                change = await anext(watcher)
                assert (change.kind, change.confirmation) == ("asked", asked)
        await sides.deciding.decide(before.confirmation_id, YES)
        with anyio.fail_after(30):
            for watcher in (first, second):
                change = await anext(watcher)
                assert (change.kind, change.confirmation) == ("decided", before)
                assert change.decision is not None
                assert change.decision.approved
        await sides.asking.consume(before.confirmation_id)
        clock.advance(minutes=5)
        with anyio.fail_after(30):
            for watcher in (first, second):
                change = await anext(watcher)
                assert (change.kind, change.confirmation) == ("expired", asked)


async def test_a_decision_that_is_acted_on_at_once_is_seen_all_the_same(sides: Sides):
    asked = make_confirmation()
    await sides.asking.put(asked)
    async with sides.asking.watch() as changes:
        await sides.deciding.decide(asked.confirmation_id, YES)
        await sides.deciding.consume(asked.confirmation_id)
        with anyio.fail_after(30):
            change = await anext(changes)
        assert change.kind == "decided"
        assert change.decision is not None
        assert change.decision.approved


def tasks_since(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Return the new tasks of stores; a client may have a task for each command."""
    return [task for task in asyncio.all_tasks() - before if task.get_name() == "confirmations"]


async def test_nobody_looks_when_nobody_watches(sides: Sides):
    before = asyncio.all_tasks()
    async with sides.asking.watch(), sides.asking.watch():
        await sides.asking.put(make_confirmation())
        [poller] = tasks_since(before)
    with anyio.fail_after(30):
        await asyncio.wait({poller})
    async with sides.asking.watch():
        assert len(tasks_since(before)) == 1
        await sides.asking.aclose()
    assert asyncio.all_tasks() == before


async def test_a_waiter_that_is_cancelled_leaves_the_others(sides: Sides):
    asked = make_confirmation()
    await sides.asking.put(asked)
    waiting = [asyncio.ensure_future(sides.asking.wait(asked.confirmation_id)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await sides.deciding.decide(asked.confirmation_id, YES)
    with anyio.fail_after(30):
        assert [(await each).approved for each in waiting[1:]] == [True, True]


async def test_arguments_may_be_megabytes_and_anything_that_json_has(sides: Sides):
    arguments = {"text": "x" * 3_000_000, "n": 2**80, "lone": "\ud800", "e": 1e300, "": [{}]}
    asked = make_confirmation(arguments=arguments)
    await sides.asking.put(asked)
    assert await sides.deciding.pending() == [asked]


async def test_a_decision_and_the_end_of_the_time_never_both_win(sides: Sides, clock: Clock):
    """Whether somebody waits already or not."""
    asked = [make_confirmation(expires_at=SOON, call_index=number) for number in range(40)]
    for each in asked:
        await sides.asking.put(each)
    wait = sides.asking.wait
    waiting = [asyncio.ensure_future(wait(each.confirmation_id)) for each in asked[::2]]

    async def decide(number: int) -> bool:
        if number == 20:
            clock.advance(minutes=5)
        try:
            await sides.deciding.decide(asked[number].confirmation_id, YES)
        except (ToolConfirmationTimeout, ConfirmationNotFound):
            return False
        return True

    with anyio.fail_after(200):
        decided = await asyncio.gather(*map(decide, range(40)))
        waited = [(await each).approved for each in waiting]
        others = [(await wait(each.confirmation_id)).approved for each in asked[1::2]]
    assert decided[::2] == waited
    assert decided[1::2] == others
    assert not all(decided)


# ---- turns that ask ----------------------------------------------------------------------------


@asynccontextmanager
async def asking(sides: Sides, session_id: str, number: int = 0) -> AsyncIterator[tuple[str, Any]]:
    """Ask as a turn does, which ends on leaving: the confirmation's id, and what follows."""
    confirmations = replace(asking_in_memory(session_id), store=sides.asking, timeout=60.0)
    call = ToolCall(id=f"call_{number}", name="add", arguments={})
    asked = AskedCall(call, number, {"a": 1, "text": "é\u2028"}, "directory")
    steps = confirmations.ask(asked, position=1, total=1)
    try:
        required = await anext(steps)
        assert isinstance(required, ConfirmationRequired)
        yield required.confirmation_id, steps
    finally:
        await steps.aclose()
        await confirmations.close()


async def test_a_turn_that_ends_forgets_its_question(sides: Sides):
    registered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def turn() -> None:
        async with asking(sides, "one") as (name, steps):
            registered.set_result(name)
            await anext(steps)

    running = asyncio.ensure_future(turn())
    with anyio.fail_after(200):
        name = await registered
    assert await ids(sides.deciding) == [name]
    running.cancel()
    with anyio.fail_after(200):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert await ids(sides.deciding) == []
    with pytest.raises(ConfirmationNotFound):
        await sides.deciding.decide(name, YES)
    (record,) = await sides.deciding.history()
    assert (record.confirmation.confirmation_id, record.ran) == (name, None)
    assert not record.decision.approved


async def test_a_turn_that_is_cancelled_at_any_moment_leaves_nothing(sides: Sides):
    async def turn(session_id: str) -> None:
        async with asking(sides, session_id) as (_, steps):
            await anext(steps)

    for number in range(40):
        running = asyncio.ensure_future(turn(f"s{number}"))
        for _ in range(number):
            await asyncio.sleep(0)
        await anyio.sleep(number * 0.0001)
        running.cancel()
        with anyio.fail_after(200):
            await asyncio.gather(running, return_exceptions=True)
        assert await ids(sides.deciding) == []
    for record in await sides.deciding.history():
        with pytest.raises(ConfirmationNotFound):
            await sides.deciding.decide(record.confirmation.confirmation_id, YES)


async def test_many_turns_at_once_each_get_their_own_decision(sides: Sides):
    asked: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    async def turn(number: int) -> str | None:
        async with asking(sides, f"s{number % 50}", number) as (name, steps):
            asked.put_nowait((name, number))
            decision = await anext(steps)
            assert isinstance(decision, ConfirmationDecision)
            return decision.reason

    turns = [asyncio.ensure_future(turn(number)) for number in range(200)]
    with anyio.fail_after(200):
        order = random.sample([await asked.get() for _ in turns], len(turns))

        async def client(some: list[tuple[str, int]]) -> None:
            for name, number in some:
                await sides.deciding.decide(name, replace(YES, reason=str(number)))

        await asyncio.gather(*(client(order[start::4]) for start in range(4)))
        assert await asyncio.gather(*turns) == [str(number) for number in range(200)]
    assert await ids(sides.deciding) == []
