"""Confirmations that cannot be registered, and how they are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mochi_server.chat.confirmations import (
    ConfirmationRequest,
    LocalConfirmations,
    PendingConfirmation,
)
from mochi_server.config import load_settings
from mochi_server.errors import ConfirmationUnavailable
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.runtime import Runtime
from mochi_server.sessions.types import ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import MODEL, kinds, read_all

TOOLS = '''
__all__ = ["add"]


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)
'''


class UnreachableConfirmations(LocalConfirmations):
    """A broker whose cache is away: nothing can be registered."""

    @asynccontextmanager
    async def ask(self, request: ConfirmationRequest) -> AsyncIterator[PendingConfirmation]:
        raise ConfirmationUnavailable(reason=f"no cache for {request.confirmation_id}")
        yield


@pytest.fixture
async def runtime(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Runtime]:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(TOOLS)
    settings = load_settings(data_dir=tmp_path, ollama_host=ollama.url)
    provider = OllamaProvider("ollama", host=ollama.url)
    found = Runtime(settings, providers={"ollama": provider}, approvals=UnreachableConfirmations())
    yield found
    await found.aclose()


async def test_a_question_that_cannot_be_registered_is_a_failed_call_and_no_question(
    runtime: Runtime, ollama: FakeOllama
) -> None:
    """The stream announces the call before its result; the reply in one piece has it too."""
    session = await runtime.sessions.create(MODEL, tool_settings=ToolSettings(tools=["add"]))
    for _ in range(2):
        ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}])
        ollama.reply(["I could not."])
    turn = await runtime.chat.open_turn(session.session_id, message="Add.")
    events = await read_all(runtime.chat.start(turn))
    assert kinds(events) == [
        "tool_call", "tool_result", "tool_continuation_start",
        "content_delta", "message_complete", "done",
    ]  # fmt: skip
    reply = await runtime.chat.complete(session.session_id, message="Again.", wait=True)
    [entry] = reply["tool_calls_executed"]
    assert (entry["success"], entry["code"]) == (False, "CONFIRMATION_UNAVAILABLE")
    assert entry["arguments"] == {"a": 1, "b": 2}


def test_a_confirmation_can_be_shown_as_json() -> None:
    """The agent's name is there only for agents."""
    request = ConfirmationRequest(
        confirmation_id="conf_1",
        session_id="a",
        tool_name="add",
        tool_source="directory",
        arguments={},
        call_index=0,
        tool_call_id="call_1",
        queue_position=1,
        queue_total=1,
        asked_at="2026-11-22T00:00:00.000000Z",
        expires_at="2026-11-22T00:05:00.000000Z",
    )
    assert "agent_name" not in request.payload()
