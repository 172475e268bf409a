"""Calls whose question or arguments are out of the ordinary."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from mochi_server.chat.confirmations import (
    ConfirmationRequest,
    LocalConfirmations,
    PendingConfirmation,
)
from mochi_server.chat.tool_calls import INTERRUPTED, unanswered
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
    settings = load_settings(data_dir=tmp_path, ollama_host=ollama.url, tool_isolation="thread")
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


@pytest.mark.parametrize(
    "call", ["add", None, {"function": "add"}, {"function": {"name": 3}, "id": 4}, {"id": None}]
)
def test_calls_of_odd_writers_get_a_result_as_well(call: JsonValue) -> None:
    """A session whose last calls a crash or an editor has left so can still be talked to."""
    [result] = unanswered([{"role": "assistant", "tool_calls": [call]}])
    assert result.content == INTERRUPTED
    assert (result.tool_name, result.tool_call_id) == (None, None)
