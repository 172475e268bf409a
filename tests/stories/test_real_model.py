"""A call and a summary by the real built-in model, which a grammar keeps in form."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from mochi_server.chat.tool_calls import Results, ToolCalls
from mochi_server.config import load_settings
from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.base import ModelRequest
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.runtime import Runtime
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.folder.source import DirectorySource
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.confirmations import asking_in_memory
from tests.support.local_model import MODEL, folder_with_model
from tests.support.runs import NoModels, run_in_memory
from tests.support.turns import read_all

TOOLS = '''
__all__ = ["add"]


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)
'''


class Numbers(BaseModel):
    a: int = Field(ge=-1000, le=1000)
    b: int = Field(ge=-1000, le=1000)


class AddCall(BaseModel):
    """What the grammar allows: a call of the one tool."""

    name: Literal["add"]
    arguments: Numbers


async def test_a_call_that_the_real_model_wrote_under_a_grammar_runs(tmp_path: Path) -> None:
    """Which numbers it chose is its own matter; the result is theirs."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(TOOLS)
    provider = LocalProvider("local", models_path=folder_with_model(tmp_path), idle_seconds=300)
    loader = ProcessLoader()
    source = DirectorySource(tmp_path / "tools", loader=loader, stamp=None, default_timeout=20)
    try:
        with anyio.fail_after(50):
            request = ModelRequest(
                model=MODEL,
                messages=[{"role": "user", "content": "Call add with a=2 and b=3, as JSON."}],
            )
            written = await provider.structured(request, AddCall)
            calls = ToolCalls(
                of_run=run_in_memory(),
                session_id="a1b2c3d4e5",
                model=MODEL,
                execution=ToolExecutionService(),
                confirmations=asking_in_memory(),
                sampler=NoModels(),
                tools={tool.name: tool for tool in await source.tools()},
                settings=ToolSettings(execution_policy=ToolExecutionPolicy.NEVER_CONFIRM),
            )
            call = ToolCall(id="call_1", name=written.name, arguments=dict(written.arguments))
            results: Results = [None]
            told = [event async for events in calls.run([call], results) for event in events]
    finally:
        await source.aclose()
        await loader.aclose()
        await provider.aclose()
    assert [event.type for event in told] == ["tool_call", "tool_result"]
    assert results[0] is not None
    assert results[0].content == str(written.arguments.a + written.arguments.b)


QUESTIONS = (
    "Hello, who are you?",
    "What is a lighthouse?",
    "Name a famous lighthouse.",
    "Why does it flash?",
    "Who kept the lamp in former times?",
    "What did they burn?",
    "How far can it be seen?",
    "What is a foghorn?",
    "Are there still keepers today?",
    "Thank you. Say goodbye.",
)


@pytest.mark.slow
async def test_after_ten_turns_a_summary_with_topics_arrives_by_itself(tmp_path: Path) -> None:
    settings = load_settings(
        data_dir=tmp_path, summarization_interval_seconds=0.2, max_output_tokens=40
    )
    models = folder_with_model(tmp_path)
    provider = LocalProvider("local", models_path=models, idle_seconds=300)
    runtime = Runtime(settings, providers={"local": provider})
    try:
        session = await runtime.sessions.create(MODEL)
        with anyio.fail_after(150):
            for question in QUESTIONS:
                turn = await runtime.chat.open_turn(session.session_id, message=question)
                await read_all(runtime.chat.start(turn))
            messages = (await runtime.sessions.get(session.session_id)).messages
            line = await arrived(runtime, messages[-1].message_id)
    finally:
        await runtime.aclose()
    assert len(messages) == 20
    assert 0 < len(line["summary"]["summary"]) <= 1000
    assert 1 <= len(line["summary"]["topics"]) <= 8
    assert line["title"]


async def arrived(runtime: Runtime, message_id: str | None) -> dict:
    """The line of the list, once it shows a summary up to this message."""
    while True:
        [line] = (await runtime.sessions.list()).entries
        if line["summary"] and line["summary"]["through_message_id"] == message_id:
            return line
        await anyio.sleep(0.05)
