"""Fixtures for pytest: a server in test mode, for front ends and clients.

In the ``conftest.py`` of the front end::

    pytest_plugins = ["mochi_server.testing"]

and in a test::

    def test_the_answer_is_shown(mochi_test_server):
        open_my_front_end(mochi_test_server.url).say("Hello")

docs/how-to/test-a-front-end.md shows more. Without pytest, ``running_server`` is the same.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from .config import MochiServerSettings, environment_without_settings, text_of_value, variable_of
from .server.attached import ATTACHED_SERVER
from .testmode.script import (
    call,
    calls,
    cut,
    error,
    finish_reason,
    instructions,
    malformed_call,
    stall,
    text,
    usage,
)

# Without the fixtures, which the plugin brings: a star import would put them before the overriding
# ones of a suite.
__all__ = [
    "TestServer",
    "call",
    "calls",
    "cut",
    "error",
    "finish_reason",
    "instructions",
    "malformed_call",
    "running_server",
    "stall",
    "text",
    "usage",
]

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
LISTENS: Final = " listens on "
WARM: Final = "  test: "
"""In the line of a server that says that everything is imported."""


class TestServer:
    """A server in a process of its own; all tests may use the same one."""

    __test__ = False

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.url = ""
        """Where it listens: ``http://127.0.0.1:40123``."""
        self._process = process
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    @property
    def api(self) -> str:
        """The address of the HTTP API: ``url`` with ``/api/v1``."""
        return f"{self.url}/api/v1"

    @property
    def log(self) -> str:
        """What the server has printed so far."""
        return "".join(self._lines)

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._lines.append(line)
                _, listens, address = line.partition(LISTENS)
                if listens and not self.url:
                    self.url = address.strip()
                if WARM in line:
                    self._ready.set()
        self._ready.set()

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            RuntimeError: It ended, or took too long; the text is what it has printed.
        """
        if not self._ready.wait(START_SECONDS) or not self.url:
            raise RuntimeError(f"the server did not start:\n{self.log}")

    def stop(self) -> None:
        """End the server; may be called again."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._reader.join(STOP_SECONDS)  # one of its children may still hold the pipe


@contextmanager
def running_server(**settings: Any) -> Iterator[TestServer]:  # noqa: ANN401 - of any setting
    """Run a server in test mode on a free port of loopback until the block ends.

    No settings are read from variables or ``.env``. Replies come at once and the data folder is
    empty, unless ``settings`` say otherwise.

    Args:
        settings: Settings of the server by the names of their fields: ``data_dir=…``,
            ``test_words_per_second=50``, ``max_tool_rounds=3``; None leaves the default.

    Raises:
        RuntimeError: It does not start; the text says why.
        TypeError: There is no such setting.
    """
    fields = MochiServerSettings.model_fields
    if unknown := [name for name in settings if name.removesuffix("_file") not in fields]:
        # The server itself would only warn.
        raise TypeError(f"no settings of mochi-server: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        values: dict[str, Any] = {"data_dir": folder, "test_words_per_second": 0, "port": 0}
        values |= {name: value for name, value in settings.items() if value is not None}
        values["data_dir"] = Path(values["data_dir"]).absolute()
        process = subprocess.Popen(  # noqa: S603 - one of our own commands
            [sys.executable, "-c", ATTACHED_SERVER, "--test"],
            cwd=folder,
            env=_environment(values),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        server = TestServer(process)
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    environment = environment_without_settings()
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | {
        variable_of(name): text_of_value(value) for name, value in settings.items()
    }


try:
    import pytest
except ImportError:  # ``running_server`` needs no pytest
    pass
else:

    @pytest.fixture(scope="session")
    def mochi_test_settings() -> dict[str, Any]:
        """Return the settings of the server; a suite overrides this fixture."""
        return {}

    @pytest.fixture(scope="session")
    def mochi_test_server(mochi_test_settings: dict[str, Any]) -> Iterator[TestServer]:
        """Run one server in test mode for all tests."""
        with running_server(**mochi_test_settings) as server:
            yield server
