"""Metrics whatever the names are that models and vendors choose."""

from __future__ import annotations

from pathlib import Path

from mochi_server.chat.journal.records import RunHead
from mochi_server.config import load_settings
from mochi_server.errors import ToolExecutionDenied
from mochi_server.observability.metrics import MOST_NAMES, Metrics
from mochi_server.protocol.events import ToolResultReady
from mochi_server.runtime import Runtime
from tests.support.metrics import Scrape

HEAD = RunHead(run_id="run_1", session_id="1", number=1, model="m", started_at="")


def refused(name: str) -> ToolResultReady:
    return ToolResultReady(
        tool_name=name,
        success=False,
        result=None,
        error_message="too many calls",
        call_index=0,
        tool_call_id="1",
        code=ToolExecutionDenied.code,
    )


async def test_names_that_a_model_makes_up_spoil_no_answer(tmp_path: Path) -> None:
    odd = ['a"b', "two\nlines", "back\\slash", "\ud800", "\0", "x" * 10_000, ""]
    async with Runtime(load_settings(data_dir=tmp_path, session_storage="memory")) as runtime:
        metrics = Metrics(runs=runtime.runs, confirmations=runtime.confirmations, version="1")
        metrics.on_events(HEAD, [refused(name) for name in odd])
        metrics.on_events(HEAD, [refused(f"name_{number}") for number in range(2 * MOST_NAMES)])
        text, _ = await metrics.scrape()
    now = Scrape(text.decode())
    calls = "mochi_tool_calls_total"
    assert now(calls, outcome="tool_execution_denied") == len(odd) + 2 * MOST_NAMES
    assert now(calls, gen_ai_tool_name='a"b') == now(calls, gen_ai_tool_name="two\nlines") == 1
    assert now(calls, gen_ai_tool_name="other") == len(odd) + MOST_NAMES
    assert len(now.values(calls, "gen_ai_tool_name")) == MOST_NAMES + 1
    assert len(text) < 200_000
