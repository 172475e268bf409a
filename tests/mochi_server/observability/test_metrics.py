"""Metrics whatever names are chosen, and what is imported for metrics and traces."""

from __future__ import annotations

import logging
import subprocess
import sys

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from mochi_server.chat.journal.records import RunHead
from mochi_server.config import load_settings
from mochi_server.errors import ToolExecutionDenied
from mochi_server.observability import tracing
from mochi_server.observability.metrics import MOST_NAMES, Metrics
from mochi_server.protocol.events import ToolResultReady
from mochi_server.runtime import Runtime
from tests.support.metrics import Scrape
from tests.support.server import environment

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


async def test_names_that_a_model_makes_up_spoil_no_answer(tmp_path):
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


# What is imported, and when


QUIET = """
import sys
from mochi_server.runtime import Runtime

Runtime(sys.argv[1]).observe("1")
print({"prometheus_client", "opentelemetry"} & {*sys.modules})
"""


def test_nothing_of_them_is_imported_by_a_server_without_them(tmp_path):
    env = {name: value for name, value in environment().items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", QUIET, str(tmp_path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, env=env
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


async def test_a_server_without_the_package_of_traces_says_what_to_install(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delitem(sys.modules, "mochi_server.observability.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    settings = load_settings(data_dir=tmp_path, session_storage="memory")
    async with Runtime(settings) as runtime:
        with caplog.at_level(logging.WARNING):
            runtime.observe("1")
        assert runtime.runs.observers == []
    [record] = caplog.records
    assert "Traces are wanted, and a package is missing" in record.getMessage()
    assert "[telemetry]" in record.getMessage()


def test_the_names_of_attributes_are_those_of_opentelemetry():
    texts = [value for value in vars(tracing).values() if isinstance(value, str)]
    names = [text for text in texts if text.startswith("gen_ai.")]
    known = [value for value in vars(gen_ai_attributes).values() if isinstance(value, str)]
    assert len(names) > 10
    assert {*names} <= {*known}
