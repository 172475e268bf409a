"""A whole server in test mode: its start, what it keeps, whom it reaches, its end."""

from __future__ import annotations

import os
import re
import signal
import sys

import anyio
import pytest

from mochi_server.backends import default_providers
from mochi_server.config import load_settings
from mochi_server.errors import ProviderNotConfigured
from mochi_server.protocol.events import ToolResultReady
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.server.initialise import run_init
from mochi_server.sessions.types import ToolSettings
from mochi_server.testing import call, calls, cut, instructions, text
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.conversations import named, said
from tests.support.fake_ollama import FakeOllama
from tests.support.server import running_server
from tests.support.tool_folders import tool_folder
from tests.support.turns import kinds, read_all, text_of

pytestmark = pytest.mark.slow

TEST = ("-m", "mochi_server", "--test", "--port", "0")
FREE = {"execution_policy": "never_confirm"}
CALCULATES = {**FREE, "tools": ["calculate"]}
GUARDED = """
import socket, sys

ours = {}

def guard(event, args):
    if event == "socket.bind":
        ours[id(args[0])] = args[0]
    if event in {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"}:
        ports = {sock.getsockname()[1] for sock in ours.values() if sock.fileno() >= 0}
        address = args[1] if event.startswith(("socket.c", "socket.s")) else args
        if address[0] in {"127.0.0.1", "localhost"} and address[1] in {*ports, 0}:
            return
        print("OUTBOUND", event, address, flush=True)
        raise PermissionError("no connections here")

sys.addaudithook(guard)
from mochi_server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_environment_test_means_memory_loopback_and_port_5099(tmp_path):
    settings = load_settings(environment="Test", data_dir=tmp_path)
    assert (settings.host, settings.port) == ("127.0.0.1", 5099)
    assert settings.session_storage == "memory"
    assert load_settings().port == 8000


def test_a_port_that_is_set_is_kept(monkeypatch):
    monkeypatch.setenv("MOCHI_ENVIRONMENT", "test")
    monkeypatch.setenv("MOCHI_PORT", "6000")
    assert load_settings().port == 6000
    assert load_settings(port=7000).port == 7000


def test_test_mode_keeps_nothing_and_reaches_nothing_whatever_else_is_set(monkeypatch):
    monkeypatch.setenv("MOCHI_SESSION_STORAGE", "json")
    monkeypatch.setenv("MOCHI_REDIS_URL", "redis://localhost")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    settings = load_settings(environment="test")
    assert settings.session_storage == "memory"
    assert settings.redis_url is None
    assert list(default_providers(settings)) == ["test"]


async def test_the_provider_is_the_openai_compatible_one_with_another_transport(tmp_path):
    runtime = Runtime(load_settings(environment="test", data_dir=tmp_path))
    provider, name = runtime.providers.resolve("openai/gpt-4:latest")
    assert isinstance(provider, ScriptedProvider)
    assert name == "openai/gpt-4:latest"
    assert ScriptedProvider.stream is OpenAICompatibleProvider.stream
    await runtime.aclose()


WAITS = """
import time
from pathlib import Path

__all__ = ["patient", "quick"]

SIGN = Path(__file__).with_name("sign.txt")


def patient() -> str:
    '''Wait for the other.'''
    while not SIGN.exists():
        time.sleep(0.01)
    return "after"


def quick() -> str:
    '''End at once.'''
    SIGN.touch()
    return "before"
"""
"""Tools that end in the wrong order where they run side by side."""


async def test_results_of_calls_side_by_side_come_in_call_order(tmp_path):
    tool_folder(tmp_path / "tools", WAITS)
    settings = load_settings(environment="test", data_dir=tmp_path, test_words_per_second=0)
    runtime = Runtime(settings)
    tools = ToolSettings(tools=["patient", "quick"], execution_policy="never_confirm")
    session = await runtime.sessions.create("lorem", tool_settings=tools)
    script = instructions(calls(("patient", {}), ("quick", {}), ("patient", {}), ("none", {})))
    turn = await runtime.chat.open_turn(session.session_id, message=script)
    events = await read_all(runtime.chat.start(turn))
    found = [event for event in events if isinstance(event, ToolResultReady)]
    assert [event.result for event in found] == [None, "after", "before", "after"]
    await runtime.aclose()


async def test_beside_real_providers_test_is_an_alias_whose_models_are_not_listed(
    tmp_path, ollama: FakeOllama
):
    settings = load_settings(
        data_dir=tmp_path, ollama_host=ollama.url, models_dir=tmp_path, test_words_per_second=0
    )
    runtime = Runtime(settings)
    listed = await runtime.providers.list_models()
    assert {model.provider for model in listed.models} == {"ollama"}
    session = await runtime.sessions.create("test/anything")
    log = runtime.chat.start(
        await runtime.chat.open_turn(session.session_id, message="Hello\nReason: why")
    )
    events = await read_all(log)
    assert kinds(events) == ["thinking_delta", "content_delta", "message_complete", "done"]
    assert text_of(events).endswith("\n\nHello\nReason: why")
    await runtime.aclose()


async def test_an_option_starts_it_with_a_clean_slate_and_leaves_nothing(tmp_path):
    for _ in range(2):
        async with running_server(
            data_dir=tmp_path, command=TEST, test_words_per_second=0
        ) as server:
            assert server.url.startswith("http://127.0.0.1:")
            assert (await server.get("/sessions"))[1]["sessions"] == []
            await said(server, "Hello", model="some/model:7b")
            assert len((await server.get("/sessions"))[1]["sessions"]) == 1
            assert await server.stop() == 0
    assert list(tmp_path.iterdir()) == []


async def test_no_connection_is_made_to_anything_but_ourselves(tmp_path):
    run_init(tmp_path, lambda _: None)
    command = ("-c", GUARDED, "--test", "--port", "0")
    async with running_server(data_dir=tmp_path, command=command) as server:
        await server.get("/health")
        await server.get("/models")
        await server.get("/tools")
        script = instructions(call("calculate", expression="6*7"), then=[[text(4)]])
        events, _ = await said(server, script, tool_settings=CALCULATES)
        assert named(events, "tool_result")[0]["result"].endswith("42")
        await said(server, instructions(cut("disconnect")))
        assert await server.stop() == 0
        assert "OUTBOUND" not in server.log


async def test_the_guard_of_that_test_sees_connections(tmp_path):
    command = ("-c", GUARDED, "--port", "0")
    async with running_server(data_dir=tmp_path, command=command) as server:
        await server.get("/health")
        await server.saw("OUTBOUND")


async def test_the_setting_cancels_every_reply_and_stores_the_part(tmp_path):
    async with running_server(
        data_dir=tmp_path,
        command=TEST,
        test_words_per_second=0,
        test_cancel_after_words=9,
    ) as server:
        events, messages = await said(server, "Hello")
        assert named(events, "error")[0]["code"] == "PROVIDER_ERROR"
        assert messages[-1]["interrupted"] is True
        assert len(messages[-1]["content"].split()) == 9


async def test_it_stops_at_once_in_the_middle_of_a_slow_reply(tmp_path):
    async with running_server(data_dir=tmp_path, command=TEST, test_words_per_second=5) as server:
        session = await server.new_session("any")
        seen = []
        path = f"/chat/{session}/stream"
        async for event in server.stream(path, {"message": instructions(text(500))}):
            seen.append(event.event)
            if len(seen) == 1:
                os.kill(server.pid, signal.SIGTERM)
        assert seen[-2:] == ["error", "done"]
        assert await server.stop() == 0


async def test_without_the_package_the_provider_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    provider = ScriptedProvider("test")
    assert not await provider.check()
    with pytest.raises(ProviderNotConfigured, match=r"\[openai\]'$"):
        await provider.list_models()


async def test_without_the_package_it_does_not_start_and_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "from mochi_server.__main__ import main\n"
        "sys.exit(main(['--test', '--port', '0']))"
    )
    with anyio.fail_after(30):
        ended = await anyio.run_process([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.decode().splitlines()
    said = r"mochi-server: Test mode needs the package openai: .*install .*\[openai\]'"
    assert re.fullmatch(said, line), line
