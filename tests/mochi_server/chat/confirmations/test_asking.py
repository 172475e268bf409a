"""Asking a person: what is stored when, and what happens when the store fails."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.confirmations import Confirmation, ConfirmationDecision
from mochi_server.chat.confirmations.asking import AskedCall, Confirmations
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.config import load_settings
from mochi_server.errors import ConfirmationUnavailable
from mochi_server.protocol.events import ConfirmationDecided, ConfirmationRequired, Event
from mochi_server.protocol.messages import ToolCall
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.runtime import Runtime
from mochi_server.sessions.types import ToolSettings
from mochi_server.state import SQLiteState
from tests.support.confirmations import (
    NO,
    YES,
    Clock,
    asking_in_memory,
    make_confirmation,
    store_in,
)
from tests.support.disk import full_disk
from tests.support.turns import MODEL, kinds, read_all
from tests.support.waiting import until

TOOLS = '''
__all__ = ["add"]


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)
'''


class UnreachableStore(StateConfirmationStore):
    """A store that is away: nothing can be stored."""

    async def put(self, confirmation: Confirmation) -> None:
        raise ConfirmationUnavailable(reason=f"no room for {confirmation.confirmation_id}")


@pytest.fixture
async def runtime(tmp_path, ollama):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(TOOLS)
    settings = load_settings(data_dir=tmp_path, ollama_host=ollama.url)
    provider = OllamaProvider("ollama", host=ollama.url)
    found = Runtime(settings, providers={"ollama": provider}, confirmations=UnreachableStore())
    yield found
    await found.aclose()


async def test_a_question_that_cannot_be_registered_is_a_failed_call_and_no_question(
    runtime, ollama
):
    session = await runtime.sessions.create(MODEL, tool_settings=ToolSettings(tools=["add"]))
    for _ in range(2):
        ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}])
        ollama.reply(["I could not."])
    turn = await runtime.chat.open_turn(session.session_id, TurnRequest(message="Add."))
    events = await read_all(runtime.chat.start(turn))
    assert kinds(events) == [
        "tool_call", "tool_result", "tool_continuation_start",
        "content_delta", "message_complete", "done",
    ]  # fmt: skip
    reply = await runtime.chat.complete(
        session.session_id, TurnRequest(message="Again.", wait=True)
    )
    [entry] = reply["tool_calls_executed"]
    assert (entry["success"], entry["code"]) == (False, "CONFIRMATION_UNAVAILABLE")
    assert entry["arguments"] == {"a": 1, "b": 2}


async def first(steps: AsyncGenerator[Event | ConfirmationDecision, None]) -> ConfirmationRequired:
    required = await anext(steps)
    assert isinstance(required, ConfirmationRequired)
    return required


def a_call(number: int = 0) -> AskedCall:
    call = ToolCall(id=f"call_{number}", name="add", arguments={"a": number})
    return AskedCall(call, number, {"a": number}, "directory")


async def test_a_confirmation_is_stored_with_its_run_before_it_is_announced():
    asking = asking_in_memory()
    steps = asking.ask(a_call(), position=1, total=1)
    required = await first(steps)
    (pending,) = await asking.store.pending()
    assert (pending.confirmation_id, pending.run_id) == (required.confirmation_id, "run_1")
    await steps.aclose()
    await asking.close()
    assert await asking.store.of_run("run_1") == []


async def test_no_limit_is_no_end():
    asking = replace(asking_in_memory(), timeout=0)
    steps = asking.ask(a_call(), position=1, total=1)
    assert (await first(steps)).timeout_seconds == 0
    (pending,) = await asking.store.pending()
    assert pending.expires_at is None
    await steps.aclose()


async def test_what_was_decided_stays_until_it_is_settled_and_says_what_ran():
    asking = asking_in_memory()
    steps = asking.ask(a_call(), position=1, total=1)
    required = await first(steps)
    await asking.store.decide(required.confirmation_id, YES)
    decision, decided = [step async for step in steps]
    assert isinstance(decision, ConfirmationDecision)
    assert isinstance(decided, ConfirmationDecided)
    (stored,) = await asking.store.of_run("run_1")
    assert stored.decision == decision
    await asking.settle("call_0", ran={"a": 7})
    assert await asking.store.of_run("run_1") == []
    (record,) = await asking.store.history()
    assert (record.decision.decided_by, record.ran) == ("loopback", {"a": 7})
    await asking.settle("call_0")
    await asking.close()


async def test_what_was_decided_is_in_the_history_also_if_the_run_is_stopped_meanwhile(tmp_path):
    asking = replace(asking_in_memory(), store=store_in(tmp_path / "state"))
    steps = asking.ask(a_call(), position=1, total=1)
    required = await first(steps)
    await asking.store.decide(required.confirmation_id, YES)
    assert [step async for step in steps]
    settling = asyncio.ensure_future(asking.settle("call_0", ran={"a": 7}))
    await asyncio.sleep(0)
    settling.cancel()
    await asyncio.wait({settling})
    assert settling.cancelled()
    await asking.close()
    assert await asking.store.of_run("run_1") == []
    (record,) = await asking.store.history()
    assert record.decision.approved


async def test_what_an_earlier_process_asked_is_not_asked_again():
    """One is decided already, of the other readers know: neither is announced."""
    before = asking_in_memory()
    names = []
    for number in range(2):
        steps = before.ask(a_call(number), position=number + 1, total=2)
        names.append((await first(steps)).confirmation_id)
        await steps.aclose()
    await before.store.decide(names[0], NO)
    after = replace(before, earlier=await before.store.of_run("run_1"), announced=names)
    earlier = [after.earlier_of(a_call(number).call) for number in range(2)]
    steps = after.ask(a_call(0), position=1, total=2, earlier=earlier[0])
    decision, decided = [step async for step in steps]
    assert isinstance(decision, ConfirmationDecision)
    assert isinstance(decided, ConfirmationDecided)
    assert (decision.reason, decided.confirmation_id) == ("not today", names[0])
    steps = after.ask(a_call(1), position=2, total=2, earlier=earlier[1])
    waiting = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    await before.store.decide(names[1], YES)
    with anyio.fail_after(30):
        assert await waiting == (await before.store.find(names[1])).decision
    await steps.aclose()


async def test_the_end_of_a_run_settles_all_that_it_left():
    asking = asking_in_memory()
    for number in range(2):
        steps = asking.ask(a_call(number), position=1, total=2)
        name = (await first(steps)).confirmation_id
        await steps.aclose()
    await asking.store.decide(name, YES)
    await asking.store.end_run("run_1")
    assert await asking.store.of_run("run_1") == []
    approved = [record.decision.approved for record in await asking.store.history()]
    assert sorted(approved) == [False, True]


async def test_a_confirmation_whose_file_somebody_removes_is_stored_again(tmp_path):
    store = store_in(tmp_path / "state")
    asking = replace(asking_in_memory(), store=store)
    steps = asking.ask(a_call(), position=1, total=1)
    name = (await first(steps)).confirmation_id
    waiting = asyncio.ensure_future(anext(steps))
    other = store_in(tmp_path / "state")
    with anyio.fail_after(30):
        for _ in range(2):
            await anyio.sleep(0.1)
            shutil.rmtree((tmp_path / "state").rename(tmp_path / "away"))
            await until(other.pending)
        await other.decide(name, YES)
        decision = await waiting
    assert isinstance(decision, ConfirmationDecision)
    assert decision.approved
    await steps.aclose()
    await asking.close()
    await store.aclose()


class FailingStore(StateConfirmationStore):
    """A store that cannot be reached while ``fails`` is set."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.fails = False
        self.refused = asyncio.Event()
        """Set when somebody could not reach it."""

    async def _refresh(self) -> None:
        if self.fails:
            self.refused.set()
            raise ConfirmationUnavailable(reason="away")
        await super()._refresh()


async def test_a_confirmation_that_was_announced_stays_open_while_the_store_is_away():
    """Also one for which nobody had begun to wait when the store went away."""
    store = FailingStore(Clock())
    asking = replace(asking_in_memory(), store=store)
    steps = asking.ask(a_call(), position=1, total=1)
    name = (await first(steps)).confirmation_id
    store.fails = True
    waiting = asyncio.ensure_future(anext(steps))
    with anyio.fail_after(30):
        await store.refused.wait()
        store._state = SQLiteState()  # it has forgotten everything when it is back
        store.fails = False
        await until(store.pending)
        await store.decide(name, YES)
        decision = await waiting
    assert isinstance(decision, ConfirmationDecision)
    assert decision.approved
    await steps.aclose()


async def test_a_confirmation_is_denied_when_the_store_is_away_until_its_time_is_over():
    clock = Clock()
    store = FailingStore(clock)
    asking = replace(asking_in_memory(), store=store)
    steps = asking.ask(a_call(), position=1, total=1)
    await first(steps)
    store.fails = True
    waiting = asyncio.ensure_future(anext(steps))
    with anyio.fail_after(30):
        await store.refused.wait()
        clock.advance(seconds=asking.timeout)
        decision = await waiting
    assert isinstance(decision, ConfirmationDecision)
    assert (decision.approved, decision.code) == (False, "CONFIRMATION_UNAVAILABLE")
    await steps.aclose()


async def asked_on_a_full_disk(folder: Path, *, is_taken: bool) -> Confirmations:
    """What is asked and decided in a run that ends while nothing can be written."""

    async def is_given_up() -> bool:
        return is_taken

    asking = replace(asking_in_memory(), store=store_in(folder), is_given_up=is_given_up)
    approved, open_ = (asking.ask(a_call(number), position=1, total=2) for number in (0, 1))
    name = (await first(approved)).confirmation_id
    await first(open_)
    await asking.store.decide(name, YES)
    assert [step async for step in approved]
    with full_disk():
        asking.note_rule(a_call(2), None)
        await asking.settle("call_2")
        await asking.settle("call_0", ran={"a": 7})
        await open_.aclose()
        await asking.close()
        assert len(await asking.store.of_run("run_1")) == 2
    return asking


async def test_what_was_decided_while_the_disk_was_full_is_in_the_history_afterwards(
    tmp_path, caplog
):
    asking = await asked_on_a_full_disk(tmp_path / "state", is_taken=False)
    assert caplog.text.count("What was decided is noted later: ") == 1
    await until(lambda: asking.store.of_run("run_1"), lambda stored: stored == [])
    records = {each.confirmation.tool_call_id: each for each in await asking.store.history()}
    assert {name: (each.decision.approved, each.ran) for name, each in records.items()} == {
        "call_0": (True, {"a": 7}),
        "call_1": (False, None),
        "call_2": (False, None),
    }
    assert records["call_2"].decision.decided_by == "policy"
    await asking.store.aclose()


async def test_a_run_that_was_taken_while_the_disk_was_full_is_still_asked_about(tmp_path):
    asking = await asked_on_a_full_disk(tmp_path / "state", is_taken=True)
    await until(lambda: asking.store.of_run("run_1"), lambda stored: len(stored) == 1)
    assert [each.tool_call_id for each in await asking.store.pending()] == ["call_1"]
    await asking.store.aclose()


async def test_a_change_that_fails_for_no_known_reason_holds_up_no_other(tmp_path, caplog):
    store = store_in(tmp_path / "state")
    await store.put(asked := make_confirmation())
    was_tried = False

    async def change() -> None:
        nonlocal was_tried
        if was_tried:
            raise TypeError("unforeseen")
        was_tried = True
        raise ConfirmationUnavailable(reason="away")

    await store.eventually(change)
    await store.eventually(partial(store.end, asked.confirmation_id, YES))
    await until(lambda: store.of_run("run_1"), lambda stored: stored == [])
    assert "unforeseen" in caplog.text
    await store.aclose()


async def test_decisions_that_cannot_be_noted_at_the_end_of_the_process_are_counted(
    tmp_path, caplog
):
    asking = await asked_on_a_full_disk(tmp_path / "state", is_taken=False)
    with full_disk():
        await asking.store.aclose()
    assert "3 decisions are not in the history" in caplog.text


async def test_what_could_not_be_noted_is_noted_when_the_process_ends(tmp_path):
    asking = await asked_on_a_full_disk(tmp_path / "state", is_taken=False)
    await asking.store.aclose()
    store = store_in(tmp_path / "state")
    assert await store.of_run("run_1") == []
    assert len(await store.history()) == 3
    await store.aclose()
