"""What processes want of each other's runs, in every state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from mochi_server.chat.runs import requests as requests_module
from mochi_server.chat.runs.requests import RunRequests
from mochi_server.errors import StorageError
from mochi_server.state import SQLiteState, StateSignals
from tests.contracts.conftest import NewState
from tests.support.waiting import until

New = Callable[[], RunRequests]


@pytest.fixture
async def new(new_state: NewState) -> AsyncIterator[New]:
    """Another process."""
    async with AsyncExitStack() as stack:

        def one() -> RunRequests:
            state = new_state()
            signals = StateSignals(state)
            made = RunRequests(state, signals)
            stack.push_async_callback(signals.aclose)
            stack.push_async_callback(made.aclose)
            return made

        yield one


async def test_a_request_to_stop_is_seen_by_others_until_it_is_withdrawn(new: New) -> None:
    one, other = new(), new()
    assert list(await one.stop_requests()) == []
    with one.subscribe() as changed:
        await changed.wait(0)
        withdraw = await other.request_stop("run_1")
        assert await changed.wait(30)
    withdraw_another = await one.request_stop("run_1")
    assert list(await one.stop_requests()) == ["run_1"]
    for _ in range(2):
        await withdraw()
    assert list(await new().stop_requests()) == ["run_1"]
    await withdraw_another()
    assert list(await one.stop_requests()) == []


async def test_each_reader_of_another_process_counts(new: New) -> None:
    owner, first, second = new(), new(), new()
    assert not await owner.has_readers("run_1")
    leave = [await first.add_reader("run_1"), await second.add_reader("run_1")]
    leave.append(await second.add_reader("run_1"))
    for one in leave:
        assert await owner.has_readers("run_1")
        await one()
        await one()
    assert not await owner.has_readers("run_1")
    assert not await owner.has_readers("run_2")


@pytest.mark.parametrize("run_id", ["../other", "a\0b", "a" * 300, "", "."])
async def test_what_can_be_no_run_is_not_asked_to_stop(new: New, run_id: str) -> None:
    requests = new()
    withdraw = await requests.request_stop(run_id)
    assert list(await requests.stop_requests()) == []
    await withdraw()
    assert list(await requests.stop_requests()) == []


async def test_a_reader_counts_for_as_long_as_its_process_renews_it(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests_module, "LEASE_SECONDS", 0.3)
    owner, reader = new(), new()
    await reader.add_reader("run_1")
    for _ in range(4):
        [(number, _)] = await _rows(owner)

        async def is_renewed(number: int = number) -> bool:
            [(now, _)] = await _rows(owner)
            return now > number

        await until(is_renewed)
        await until(lambda: owner.has_readers("run_1"))
    await reader.aclose()

    async def is_dead() -> bool:
        return not await owner.has_readers("run_1")

    await until(is_dead)


async def test_what_a_crash_has_left_is_removed_when_it_is_old(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = new(), new()
    await one.request_stop("run_1")
    await one.add_reader("run_1")
    await one.aclose()
    await other.prune()
    assert len(await _rows(other)) == 2
    monkeypatch.setattr(requests_module, "ABANDONED_SECONDS", 0)
    await other.prune()
    assert await _rows(other) == []


async def _rows(requests: RunRequests) -> list[tuple[int, float]]:
    await requests.stop_requests()
    return [*requests._seen.values()]


class Away(SQLiteState):
    """A state that can be away."""

    is_away = False

    def _run(self, *arguments: object) -> object:  # type: ignore[override]
        if self.is_away:
            raise StorageError("away")
        return super()._run(*arguments)  # type: ignore[arg-type]


async def test_readers_count_without_the_state_as_long_as_their_leases_could_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = Away()
    owner, reader, late = (RunRequests(state, StateSignals(state)) for _ in range(3))
    await reader.add_reader("run_1")
    assert await owner.has_readers("run_1")
    withdraw = await owner.request_stop("run_1")
    state.is_away = True
    leave = await reader.add_reader("run_2")
    await leave()
    with pytest.raises(StorageError):
        await owner.request_stop("run_1")
    await withdraw()
    await owner.prune()
    assert await owner.has_readers("run_1")
    assert not await late.has_readers("run_1")
    monkeypatch.setattr(requests_module, "LEASE_SECONDS", 0)
    assert not await owner.has_readers("run_1")
    await reader.aclose()
