"""``mochi_server.testing``: a server in test mode for other people's suites."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from mochi_server import testing
from mochi_server.server.announcement import provider_lines
from mochi_server.server.initialise import run_init
from mochi_server.testing import WARM, TestServer, running_server
from tests.support.pytest_runs import pytest_in
from tests.support.server import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "frontend_test"


def test_the_end_to_end_test_of_the_example_passes(tmp_path):
    folder = tmp_path / "front"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    ended = pytest_in(folder)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_program_without_pytest_runs_a_server():
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from mochi_server.testing import running_server\n"
        "with running_server() as server: print(server.url)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("http://127.0.0.1:")


def test_the_end_to_end_test_of_the_example_has_20_lines():
    lines = (EXAMPLE / "test_front_end.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20


SUITE = {
    "conftest.py": (
        'import pytest\n\npytest_plugins = ["mochi_server.testing"]\n\n'
        '@pytest.fixture(scope="session")\ndef mochi_test_settings():\n'
        '    return {"api_token": "secret"}\n'
    ),
    "test_both.py": (
        "import aiohttp, pytest\nfrom urllib.request import urlopen\n\n"
        "def test_sync(mochi_test_server):\n"
        "    assert urlopen(f'{mochi_test_server.api}/health').status == 200\n\n"
        "@pytest.mark.asyncio\nasync def test_async(mochi_test_server):\n"
        "    async with aiohttp.ClientSession() as http:\n"
        "        async with http.get(f'{mochi_test_server.api}/models') as refused:\n"
        "            assert refused.status == 401\n"
    ),
    "test_star.py": (
        "from mochi_server.testing import *\n\n"
        "def test_it(mochi_test_settings):\n"
        "    assert mochi_test_settings == {'api_token': 'secret'}\n"
        "    assert instructions(text(1)) and TestServer and running_server\n"
    ),
    "test_client.py": (
        "import ollama\nfrom mochi_server.testing import call, instructions, text\n\n"
        "ADD = {'type': 'function', 'function': {'name': 'add'}}\n\n"
        "def test_it(mochi_test_server):\n"
        "    order = instructions(call('add', a=2, b=3), then=[[text(exactly='5')]])\n"
        "    said = [{'role': 'user', 'content': order}]\n"
        "    options = {'headers': {'Authorization': 'Bearer secret'}, 'trust_env': False}\n"
        "    with ollama.Client(f'{mochi_test_server.url}/ollama', **options) as client:\n"
        "        message = client.chat('any', said, tools=[ADD]).message\n"
        "        assert message.tool_calls[0].function.arguments == {'a': 2, 'b': 3}\n"
        "        said += [message, {'role': 'tool', 'content': '5'}]\n"
        "        assert client.chat('any', said, tools=[ADD]).message.content == '5'\n"
    ),
}
"""Of somebody who uses the fixtures, with settings of their own."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """What a run of that suite prints."""
    folder = tmp_path_factory.mktemp("suite") / "tests"
    folder.mkdir()
    for name, content in SUITE.items():
        (folder / name).write_text(content)
    ended = pytest_in(folder, "-rA")
    return ended.stdout + ended.stderr


def test_the_fixtures_serve_sync_and_async_tests_with_settings_of_the_suite(suite):
    assert "PASSED test_both.py::test_sync" in suite, suite
    assert "PASSED test_both.py::test_async" in suite, suite


def test_a_star_import_keeps_the_settings_of_the_suite(suite):
    """The fixtures come as a plugin: in the names of a module they would hide those settings."""
    assert "PASSED test_star.py::test_it" in suite, suite


def test_a_client_of_ollama_has_a_stand_in_that_obeys_its_messages(suite):
    assert "PASSED test_client.py::test_it" in suite, suite


def test_without_pytest_a_server_runs_for_the_block_and_none_leaves_a_setting_unset(tmp_path):
    run_init(tmp_path, lambda _: None)
    settings = {"cors_origins": ["https://a.example"], "api_token": None}
    settings |= {"data_dir": tmp_path, "test_cancel_after_words": None}
    with running_server(**settings) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert "listens on" in server.log
        with urlopen(f"{server.api}/models") as answer:
            assert answer.status == 200
        with urlopen(f"{server.api}/tools") as answer:
            assert "calculate" in json.load(answer)["tools"]
        with urlopen(f"{server.api}/health") as health:
            assert json.load(health)["providers"] == {"test": {"reachable": True}}
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{server.api}/health")
    server.stop()


def test_nobodys_settings_are_used(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("MOCHI_PORT=nonsense")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOCHI_API_TOKEN", "mine")
    monkeypatch.setenv("mochi_max_tool_rounds", "0")
    monkeypatch.setenv("MAX_HISTORY_TOKENS", "nonsense")
    with running_server() as server, urlopen(f"{server.api}/models") as answer:
        assert answer.status == 200


def test_a_server_that_does_not_start_says_why():
    with (
        pytest.raises(RuntimeError, match="MOCHI_MAX_TOOL_ROUNDS"),
        running_server(max_tool_rounds=0),
    ):
        pass


def test_the_line_that_says_that_a_server_is_ready_comes_also_when_no_model_could_be_listed():
    health = {"providers": {"test": {"reachable": True}}}
    assert [f"  {line}" for line in provider_lines(health, [], [])] == [f"{WARM}0 models"]


def test_a_setting_that_is_none_is_refused_by_its_name():
    with pytest.raises(TypeError, match="cors_origin"), running_server(cors_origin=["*"]):
        pass


def test_a_grandchild_that_holds_the_output_does_not_hold_the_end(monkeypatch):
    monkeypatch.setattr(testing, "STOP_SECONDS", 0.5)
    waits = "import sys; sys.stdin.read()"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {waits!r}])\n"
        "print(child.pid, 'listens on nothing\\n  test: warm', flush=True)\n"
        "child.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    server = TestServer(process)
    server.wait()
    ended = threading.Thread(target=server.stop, daemon=True)
    ended.start()
    ended.join(60)
    held = ended.is_alive()
    process.stdin.close()  # ends the grandchild
    ended.join(60)
    assert not held
    assert process.poll() is not None
    server.stop()


def _listens(url):
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=20):
            return True
    except ConnectionError:
        return False


def test_no_server_outlives_tests_that_are_killed():
    code = (
        "import sys\n"
        "from mochi_server.testing import running_server\n"
        "with running_server() as server:\n"
        "    print(server._process.pid, server.url, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process, url = tests.stdout.readline().split()
    tests.kill()
    tests.wait(60)
    tests.stdout.close()
    tests.stdin.close()
    until = time.monotonic() + 60
    while (listens := _listens(url)) and time.monotonic() < until:
        time.sleep(0.05)
    if listens:
        os.kill(int(process), signal.SIGKILL)
    assert not listens


def test_importing_the_library_does_not_import_the_fixtures():
    code = "import sys, mochi_server; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
