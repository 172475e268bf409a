"""What is imported for metrics and traces, and when."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from mochi_server.config import load_settings
from mochi_server.observability import tracing
from mochi_server.runtime import Runtime
from tests.support.server import environment

QUIET = """
import sys
from mochi_server.runtime import Runtime

Runtime(sys.argv[1]).observe("1")
print({"prometheus_client", "opentelemetry"} & {*sys.modules})
"""


def test_nothing_of_them_is_imported_by_a_server_without_them(tmp_path: Path) -> None:
    env = {name: value for name, value in environment().items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", QUIET, str(tmp_path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, env=env
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


async def test_a_server_without_the_package_of_traces_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_the_names_of_attributes_are_those_of_opentelemetry() -> None:
    texts = [value for value in vars(tracing).values() if isinstance(value, str)]
    names = [text for text in texts if text.startswith("gen_ai.")]
    known = [value for value in vars(gen_ai_attributes).values() if isinstance(value, str)]
    assert len(names) > 10
    assert {*names} <= {*known}
