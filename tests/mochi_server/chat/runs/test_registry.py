"""The registry of runs: what ends one, and what others see of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mochi_server.chat.confirmations.memory import MemoryConfirmationStore
from mochi_server.chat.journal.memory import MemoryRunJournal
from mochi_server.chat.runs import registry as registries
from mochi_server.chat.runs.recovery import RunRecovery
from mochi_server.chat.runs.registry import RunRegistry
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import InternalError, ShuttingDown
from mochi_server.protocol.events import ContentDelta, Done, Event
from mochi_server.sessions import SessionManager
from mochi_server.sessions.storage.memory import MemoryStorage
from tests.support.runs import head
from tests.support.turns import kinds, read_all


def new_registry() -> RunRegistry:
    journal, sessions = MemoryRunJournal(), SessionManager(MemoryStorage())
    return RunRegistry(journal, RunRecovery(journal, sessions, sessions, MemoryConfirmationStore()))


class Script:
    """A turn that does what the test says."""

    def __init__(
        self, registry: RunRegistry, *events: Event, error: BaseException | None = None
    ) -> None:
        self.run = registry.new(head("run_scripted", session_id="scripted"))
        self._events, self._error = events, error
        self.released = 0

    async def events(self) -> AsyncGenerator[list[Event], None]:
        for event in self._events:
            yield [event]
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error

    async def release(self) -> None:
        self.released += 1


async def test_an_unforeseen_failure_ends_in_the_log_and_not_in_the_air(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client gets an error without a trace; the server's log has the trace."""
    registry = new_registry()
    script = Script(registry, ContentDelta("x"), error=KeyError("secret"))
    events = await read_all(registry.start(script))
    assert kinds(events) == ["content_delta", "error", "done"]
    assert events[1].payload()["code"] == InternalError.code
    assert "secret" not in str(events[1].payload())
    assert "secret" in caplog.text
    assert script.released == 1


async def test_a_turn_is_over_for_the_registry_before_its_readers_see_the_end() -> None:
    """Who sees done may start the next turn at once."""
    registry = new_registry()
    script = Script(registry, ContentDelta("x"))
    reader = registry.start(script).reader()
    while (batch := await reader.next()) is not None:
        if any(isinstance(event, Done) for _, event in batch):
            assert script.released == 1
            assert not len(registry)
            assert not registry.is_running("scripted")
    reader.leave()
    assert not registry.interrupt("scripted", ShuttingDown())


async def test_a_turn_that_was_ended_gets_the_time_to_save_whatever_the_limit_was() -> None:
    """Asked to be quick, a server still keeps what it has."""
    saved = asyncio.Event()

    class Saving(Script):
        async def release(self) -> None:
            await run_to_completion(saved.wait())

    registry = new_registry()
    registry.start(Saving(registry))
    registry.stop_all()
    closing = asyncio.ensure_future(registry.wait_closed(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    saved.set()
    await asyncio.wait_for(closing, 30)
    assert not len(registry)


async def test_a_turn_that_never_ends_holds_up_no_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time to save has an end as well."""
    monkeypatch.setattr(registries, "SAVE_SECONDS", 0.01)
    never = asyncio.Event()

    class Stuck(Script):
        async def release(self) -> None:
            await run_to_completion(never.wait())

    registry = new_registry()
    registry.start(Stuck(registry))
    registry.stop_all()
    await asyncio.wait_for(registry.wait_closed(0), 30)
    assert len(registry) == 1
    never.set()
    await registry.wait_closed(5)
