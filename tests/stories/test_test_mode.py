"""A server in test mode: its start, its conversations, what it keeps, whom it reaches."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
import pytest_asyncio

from mochi_server.backends import default_providers
from mochi_server.config import load_settings
from mochi_server.errors import ProviderNotConfigured
from mochi_server.protocol.events import ToolResultReady
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.server.initialise import run_init
from mochi_server.sessions.types import ToolSettings
from mochi_server.testing import call, calls, cut, error, instructions, stall, text
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.conversations import named, said, turn, words_of
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.tool_folders import tool_folder
from tests.support.turns import kinds, read_all, text_of
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

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


@pytest_asyncio.fixture(loop_scope="module")
async def ollama() -> AsyncIterator[FakeOllama]:
    """The usual one, in the loop of these tests."""
    async with FakeOllama() as server:
        yield server


async def test_the_environment_test_means_memory_loopback_and_port_5099(tmp_path):
    settings = load_settings(environment="Test", data_dir=tmp_path)
    assert (settings.host, settings.port) == ("127.0.0.1", 5099)
    assert settings.session_storage == "memory"
    assert load_settings().port == 8000


async def test_a_port_that_is_set_is_kept(monkeypatch):
    monkeypatch.setenv("MOCHI_ENVIRONMENT", "test")
    monkeypatch.setenv("MOCHI_PORT", "6000")
    assert load_settings().port == 6000
    assert load_settings(port=7000).port == 7000


async def test_test_mode_keeps_nothing_and_reaches_nothing_whatever_else_is_set(monkeypatch):
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
    turn = await runtime.chat.open_turn(session.session_id, TurnRequest(message=script))
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
        await runtime.chat.open_turn(session.session_id, TurnRequest(message="Hello\nReason: why"))
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
    with anyio.fail_after(100):
        ended = await anyio.run_process([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.decode().splitlines()
    said = r"mochi-server: Test mode needs the package openai: .*install .*\[openai\]'"
    assert re.fullmatch(said, line), line


RUN = re.compile(
    r'(?<="run_id":")run_[0-9a-f]{16}|(?<=_at":")[0-9T:.Z-]+|(?<="timestamp":")[0-9T:.Z-]+'
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("conversations")
    run_init(folder, lambda _: None)
    async with running_server(
        data_dir=folder, environment="test", test_words_per_second=0, summarization_enabled=True
    ) as found:
        yield found


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """A server in test mode without pace, with the examples."""
    yield shared
    assert "Traceback" not in shared.log, shared.log


async def test_the_models_are_some_names_and_any_other_works(server):
    _, listed = await server.get("/models")
    assert {model["name"] for model in listed["models"]} >= {"lorem", "lorem-small"}
    first = listed["models"][0]
    assert first["capabilities"] == ["completion", "tools", "thinking", "vision"]
    assert first["context_length"] == 32768
    assert (await server.get("/models/never-heard-of"))[0] == 200
    assert (await server.get("/health"))[1]["providers"] == {"test": {"reachable": True}}


async def test_by_default_what_is_stored_is_what_was_streamed(server):
    events, messages = await said(server, "Tell me\nReason: think first")
    assert messages[-1]["content"] == words_of(events)
    assert messages[-1]["thinking"] == words_of(events, "thinking_delta")
    assert "interrupted" not in messages[-1]
    assert named(events, "message_complete")[0]["finish_reason"] == "stop"


async def test_a_cancel_in_the_script_stores_the_part_as_interrupted(server):
    outcomes = [
        await said(server, instructions(text(30), cut("cancel", after_words=7))) for _ in "12"
    ]
    for events, messages in outcomes:
        assert [event.event for event in events][-2:] == ["error", "done"]
        assert named(events, "error")[0]["code"] == "PROVIDER_ERROR"
        assert messages[-1]["interrupted"] is True
        assert messages[-1]["content"] == words_of(events)
        assert len(words_of(events).split()) == 7
    assert outcomes[0][1][-1]["content"] == outcomes[1][1][-1]["content"]


async def test_a_message_after_a_failure_is_answered_as_in_a_new_session(server):
    session = await server.new_session("any")
    for message in (instructions(error(503)), instructions(cut("disconnect"))):
        assert named(await turn(server, session, message), "error")
    message = "Once  more,\r\n please.\nReason: the last one failed"
    events = await turn(server, session, message)
    alone, _ = await said(server, message)
    for kind in ("thinking_delta", "content_delta"):
        assert words_of(events, kind) == words_of(alone, kind) != ""


async def test_a_client_that_leaves_at_a_stall_stores_the_part(server):
    session = await server.new_session("any")
    script = instructions(text(30), stall(30, after_words=10))
    async for event in server.stream(f"/chat/{session}/stream", {"message": script}):
        if event.event == "content_delta":
            heard = event.data["content"]
            break
    _, found = await until(
        lambda: server.get(f"/sessions/{session}"),
        lambda answer: answer[1]["messages"][-1]["role"] == "assistant",
    )
    stored = found["messages"][-1]
    assert stored["interrupted"] is True
    assert stored["content"].startswith(heard)
    assert len(stored["content"].split()) <= 10


async def test_several_streams_become_paragraphs_and_calls_of_one_reply(server):
    script = instructions(
        text(exactly="One."),
        call("calculate", expression="1+1"),
        text(exactly="Two."),
        call("calculate", expression="2+2"),
        reasoning=2,
    )
    _, messages = await said(server, script, tool_settings=CALCULATES)
    reply = messages[1]
    assert reply["content"] == "One.\n\nTwo."
    assert len(reply["thinking"].split("\n\n")) == 2
    asked = [entry["function"]["arguments"]["expression"] for entry in reply["tool_calls"]]
    assert asked == ["1+1", "2+2"]


async def test_a_whole_conversation_with_tools_and_a_confirmation_in_one_message(server):
    script = instructions(
        text(exactly="I write it."),
        calls(
            ("calculate", {"expression": "6*7"}),
            ("write_file", {"path": "answer.txt", "content": "42"}),
        ),
        then=[[call("read_file", path="answer.txt")], [text(exactly="The file says 42.")]],
    )
    session = await server.new_session(
        "any",
        tool_settings={
            "tools": ["calculate", "write_file", "read_file"],
            "execution_policy": "confirm_destructive",
        },
    )
    events = []
    with anyio.fail_after(30):
        async for event in server.stream(f"/chat/{session}/stream", {"message": script}):
            events.append(event)
            if event.event == "tool_call_confirmation_required":
                assert event.data["tool_name"] == "write_file"
                body = {"confirmation_id": event.data["confirmation_id"], "approved": True}
                assert (await server.post(f"/chat/{session}/confirm-tool", body))[0] == 200
    results = {data["tool_name"]: data for data in named(events, "tool_result")}
    assert all(data["success"] for data in results.values()), results
    assert results["calculate"]["result"].endswith("42")
    assert "42" in results["read_file"]["result"]
    assert words_of(events) == "I write it.The file says 42."
    assert len(named(events, "tool_continuation_start")) == 2
    assert [event.event for event in events][-2:] == ["message_complete", "done"]


async def test_an_agent_can_be_scripted_from_the_outer_message(server):
    inner = instructions(
        text(exactly="I look first."),
        then=[[call("list_files")], [text(exactly="The folder is empty.")]],
        lasting=True,
    )
    script = instructions(
        call("agent", agent="coder", instruction=inner), then=[[text(exactly="So it is.")]]
    )
    events, _ = await said(
        server, script, agent_settings={"enabled_agents": ["coder"]}, tool_settings=FREE
    )
    assert words_of(events, "agent_planning") == "I look first."
    assert [data["tool_name"] for data in named(events, "agent_tool_call")] == ["list_files"]
    assert words_of(events, "agent_execution") == "The folder is empty."
    assert words_of(events) == "So it is."


FAILURES = [
    (error(500), "PROVIDER_ERROR"),
    (error(429, retry_after=1), "PROVIDER_BUSY"),
    (error(404), "MODEL_NOT_FOUND"),
    (error(400, code="context_length_exceeded"), "CONTEXT_OVERFLOW"),
    (cut("disconnect"), "PROVIDER_UNREACHABLE"),
    ({"text_message": {"length": -1}}, "PROVIDER_ERROR"),
]


async def test_each_failure_reaches_the_client_as_its_code(server):
    for item, code in FAILURES:
        block = f'<|instruction_start|>{{"messages": [{json.dumps(item)}]}}<|instruction_end|>'
        events, _ = await said(server, block)
        assert [event.event for event in events] == ["run_start", "error", "done"]
        assert named(events, "error")[0]["code"] == code, item


async def test_when_to_try_again_is_told_by_a_stream_too(server):
    busy = instructions(error(429, retry_after=20))
    events, _ = await said(server, busy)
    assert named(events, "error")[0]["details"]["retry_after"] == 20
    session = await server.new_session("any")
    async with server.http.post(f"{server.api}/chat/{session}", json={"message": busy}) as answer:
        body = await answer.json()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "20")
    assert body["error"]["details"]["retry_after"] == 20


async def transcript(server: Server) -> list[str]:
    """Every byte of some streams, without the ids and times of their runs."""
    found = []
    for message in (
        "Hello\nReason: why not",
        instructions(text(40), call("calculate", expression="1+1"), then=[[text(3)]]),
        instructions(calls(*(("calculate", {"expression": f"1+{n}"}) for n in range(4)))),
        instructions(text(40), error(500, after_words=20)),
    ):
        session = await server.new_session("any", tool_settings=CALCULATES)
        url = f"{server.api}/chat/{session}/stream"
        async with server.http.post(url, json={"message": message}) as response:
            found.append(RUN.sub("", await response.text()))
        _, stored = await server.get(f"/sessions/{session}")
        found.append(str([entry["message_id"] for entry in stored["messages"]]))
    new = {"model": "any", "message": "Hi"}
    async with server.http.post(f"{server.api}/chat/stream", json=new) as response:
        assert response.status == 200
        found.append(await response.text())
    return found


async def test_two_starts_give_the_same_bytes(tmp_path):
    run_init(tmp_path, lambda _: None)
    transcripts = []
    for _ in range(2):
        options = {"command": TEST, "test_words_per_second": 0}
        async with running_server(data_dir=tmp_path, **options) as fresh:
            transcripts.append(await transcript(fresh))
    assert transcripts[0] == transcripts[1]
    assert transcripts[0][0].count("content_delta") > 1


async def test_summaries_are_written_too(server):
    session_id = await server.new_session(model="lorem")
    await server.post(f"/chat/{session_id}", {"message": "Hello"})
    status, written = await server.post(f"/sessions/{session_id}/summarize")
    assert (status, written["model_used"]) == (200, "lorem")
    assert written["summary"]
    assert written["topics"]
