"""Servers that misbehave, over stdio: they hurt only their own calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.mcp.servers import connection
from mochi_server.tools.mcp.servers import server as server_module
from tests.support.mcp import Source, Wire, call, is_running, mcp_source, tool, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@asynccontextmanager
async def lively(seconds: float = 1.0) -> AsyncIterator[None]:
    """Fail if the loop works for so long without others having their turn.

    It is the thread's own time that counts: a busy machine may hold it up.
    """
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - began)

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
    assert longest < seconds


@asynccontextmanager
async def one_server(
    folder: Path, calls: dict[str, Any], **plan: Any
) -> AsyncIterator[tuple[Source, Wire]]:
    """A server with these tools, and a good one beside it, which works to the end."""
    wire = Wire(folder / "plan", tools=[tool("echo"), *map(tool, calls)], calls=calls, **plan)
    good = Wire(folder / "good", tools=[tool("echo")])
    write_config(folder, a=wire.entry(), good=good.entry())
    async with mcp_source(folder) as source:
        await source.tool("good__echo")
        yield source, wire
        assert await source.call("good__echo", text="still here") == '{"text": "still here"}'
        assert len(good.pids) == 1


async def test_a_server_that_dies_in_a_call_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "FIRST_DELAY", 60.0)
    async with one_server(tmp_path, {"die": {"do": "die"}}) as (source, _):
        with pytest.raises(ToolFailed) as raised:
            await source.call("a__die")
        assert str(raised.value) == (
            "The MCP server 'a' ended during the call: its process ended with exit code 9 "
            "(it hurts)."
        )
        [status] = [each for each in await source.servers.status() if each.name == "a"]
        assert (status.state, status.restarts) == ("failed", 0)
        assert status.last_error == "its process ended with exit code 9 (it hurts)"
        source.servers.servers["a"]._retry_at = 0.0  # as if the time were over
        assert await source.call("a__echo", text="x") == '{"text": "x"}'
        [status] = [each for each in await source.servers.status() if each.name == "a"]
        assert (status.state, status.restarts, status.last_error) == ("ready", 1, None)
        log = source.servers.log_of("a")
        assert [line for line in log if not line.startswith("[")] == [
            "I am up",
            "it hurts",
            "I am up",
        ]


async def test_a_server_that_fails_again_and_again_is_left_alone_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "FIRST_DELAY", 20.0)
    async with one_server(tmp_path, {}, start="exit") as (source, wire):
        server = source.servers.servers["a"]
        await until(lambda: server.state == "failed")
        with pytest.raises(
            ToolFailed, match=r"exit code 3 \(no, I am not\)\. It is started again after [12]\d s"
        ):
            await server.wait_started()
        server._retry_at = 0.0  # as if the time were over
        await server.wait_started()
        assert len(wire.pids) == 2
        await until(lambda: server.state == "failed")
        with pytest.raises(ToolFailed, match=r"It is started again after [34]\d s"):
            await server.wait_started()
        assert source.groups() == {"good": ["good__echo"]}


async def test_a_server_that_hangs_at_its_start_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with one_server(tmp_path, {}, start="hang", stays=True) as (source, wire):
        assert await source.names() == ["good__echo"]
        assert source.servers.servers["a"].last_error is None
        monkeypatch.setattr(connection, "START_SECONDS", 1)
        await source.servers.restart("a")
        await until(lambda: source.servers.servers["a"].last_error)
        assert "did not start within 1 seconds" in source.problems()[0].reason
        await until(lambda: not any(map(is_running, wire.pids)))


async def test_what_is_no_message_is_passed_over(tmp_path: Path):
    calls = {"rubbish": {"do": "rubbish", "count": 20_000}}
    async with lively(), one_server(tmp_path, calls, start="rubbish") as (source, _):
        assert await source.call("a__rubbish") == "{}"
        assert "Welcome to the machine 0!" in "\n".join(source.servers.log_of("a"))


async def test_a_flood_of_notifications_is_dropped(tmp_path: Path):
    flood = {"do": "notify", "count": 10_000, "method": "notifications/message"}
    flood["params"] = {"level": "info", "data": "x"}
    asks = {"do": "notify", "count": 5_000, "method": "notifications/tools/list_changed"}
    async with lively(), one_server(tmp_path, {"flood": flood, "asks": asks}) as (source, wire):
        assert await source.call("a__flood") == "{}"
        assert await source.call("a__asks") == "{}"
        assert any("messages were dropped" in line for line in source.servers.log_of("a"))
    assert len(wire.sent("tools/list")) < 10


async def test_stderr_is_kept_in_part(tmp_path: Path):
    calls = {"loud": {"do": "stderr", "size": 50_000_000, "lines": 300}}
    async with lively(), one_server(tmp_path, calls) as (source, _):
        assert await source.call("a__loud") == "{}"
        await until(lambda: source.servers.log_of("a")[-1] == "line 299")
        log = source.servers.log_of("a")
        assert (len(log), log[0]) == (200, "line 100")


@pytest.mark.parametrize("id_last", [False, True])
async def test_a_result_of_100_mb_fails_its_own_call(tmp_path: Path, id_last: bool):
    calls = {"large": {"do": "large", "size": 100_000_000, "id_last": id_last}}
    async with lively(), one_server(tmp_path, calls) as (source, wire):
        with pytest.raises(ToolFailed, match="the answer is larger than 10 MiB"):
            await source.call("a__large")
        assert await source.call("a__echo", text="x") == '{"text": "x"}'
        assert len(wire.pids) == 1


@pytest.mark.parametrize(
    "raw",
    [
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": ' + "[" * 5_000 + "]" * 5_000 + "}}",
        '{"jsonrpc": "2.0", "id": ID, "result": [' + "1," * 200_000 + "1]}",
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": {"type": "odd"}}}',
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": "\\ud800"}}',
        '{"jsonrpc": "2.0", "id": ID, "result": 3}',
        '{"result": NaN, "jsonrpc": "2.0", "id": ID}',
    ],
)
async def test_an_answer_that_is_none_fails_its_own_call(tmp_path: Path, raw: str):
    async with lively(), one_server(tmp_path, {"odd": {"raw": raw}}) as (source, wire):
        with pytest.raises(ToolFailed, match="The MCP server 'a' failed"):
            await source.call("a__odd")
        assert await source.call("a__echo", text="x") == '{"text": "x"}'
        assert len(wire.pids) == 1


async def test_an_endless_list_of_tools_ends(tmp_path: Path):
    async with one_server(tmp_path, {"b": {}}, endless=True) as (source, _):
        await source.tool("a__b")
        assert await source.names() == ["a__echo", "a__b", "good__echo"]


async def test_a_call_that_is_given_up_is_cancelled_at_the_server(tmp_path: Path):
    async with one_server(tmp_path, {"hang": {"do": "hang"}}) as (source, wire):
        hang = await source.tool("a__hang")
        with anyio.move_on_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(source.call, "a__hang")
                await until(lambda: wire.sent("tools/call"))
                group.cancel_scope.cancel()
        await until(lambda: wire.sent("notifications/cancelled"))
        [cancelled] = wire.sent("notifications/cancelled")
        assert cancelled["params"]["requestId"] == wire.sent("tools/call")[0]["id"]
        assert hang.timeout == 60


async def test_calls_side_by_side_get_their_own_answers(tmp_path: Path):
    async with one_server(tmp_path, {}) as (source, wire):
        await source.tool("a__echo")
        texts = [f"text {number}" for number in range(100)]
        found = await asyncio.gather(*(source.call("a__echo", text=text) for text in texts))
        assert [json.loads(each)["text"] for each in found] == texts
        assert len(wire.pids) == 1


async def test_no_process_is_left_at_the_end(tmp_path: Path):
    async with one_server(tmp_path, {"child": {"do": "child"}}, stays=True) as (source, wire):
        await source.call("a__child")
    [children] = [note["pids"] for note in wire.notes if note.get("event") == "child"]
    assert len(children) == 2
    await until(lambda: not any(map(is_running, [*wire.pids, *children])))


PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.support.mcp import mcp_source

async def main():
    async with mcp_source(Path(sys.argv[1])) as source:
        await source.call("a__child")
        print("ready", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_outlives_ours(tmp_path: Path, number: int):
    calls = {"child": {"do": "child"}}
    wire = Wire(tmp_path / "plan", tools=[tool("child")], calls=calls, stays=True)
    write_config(tmp_path, a=wire.entry())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ours = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert ours.stdout is not None
    assert await ours.stdout.readline() == b"ready\n"
    [children] = [note["pids"] for note in wire.notes if note.get("event") == "child"]
    assert all(map(is_running, [*wire.pids, *children]))
    os.kill(ours.pid, number)
    await ours.wait()
    await until(lambda: not any(map(is_running, [*wire.pids, *children])))


async def test_a_server_gets_few_variables_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_OURS", "1")
    monkeypatch.setenv("WANTED", "1")
    wire = Wire(tmp_path / "plan", tools=[tool("echo")])
    write_config(tmp_path, a={**wire.entry(), "env": {"OWN": "1"}})
    async with mcp_source(tmp_path, variables=["WANTED"], working_dir=tmp_path) as source:
        await source.call("a__echo")
    start = wire.notes[0]
    assert {"OWN", "WANTED", "PATH"} <= set(start["env"])
    assert "SECRET_OF_OURS" not in start["env"]
    assert start["cwd"] == str(tmp_path)


async def test_an_idle_server_ends_until_the_next_call(tmp_path: Path):
    wire = Wire(tmp_path / "plan", tools=[tool("echo")])
    write_config(tmp_path, a=wire.entry())
    async with mcp_source(tmp_path, idle_seconds=0.2) as source:
        await source.call("a__echo")
        await until(lambda: not any(map(is_running, wire.pids)))
        assert await source.names() == ["a__echo"]
        [status] = await source.servers.status()
        assert (status.state, status.last_error) == ("stopped", None)
        count = len(wire.pids)
        await source.call("a__echo")
    assert len(wire.pids) > count


async def test_each_session_has_a_server_of_its_own_where_it_is_wanted(tmp_path: Path):
    wire = Wire(tmp_path / "plan", tools=[tool("echo")])
    write_config(tmp_path, a=wire.entry(scope="session"))
    async with mcp_source(tmp_path) as source:
        await source.tool("a__echo")
        for session in ("one", "two", "one"):
            await source.call("a__echo", session)
        calls = [note["pid"] for note in wire.sent("tools/call")]
        assert calls[0] == calls[2] != calls[1]
        await source.servers.end_session("one")
        await until(lambda: not is_running(calls[0]))
        assert is_running(calls[1])
        await source.call("a__echo", "two")
        assert wire.sent("tools/call")[-1]["pid"] == calls[1]


async def test_a_replaced_server_of_a_session_ends(tmp_path: Path):
    wire = Wire(tmp_path / "plan", tools=[tool("echo")])
    write_config(tmp_path, a=wire.entry(scope="session"))
    async with mcp_source(tmp_path, idle_seconds=0.2) as source:
        held = await source.tool("a__echo")
        await call(held)
        write_config(tmp_path, a=wire.entry(scope="session") | {"env": {"A": "1"}})
        await source.servers.refresh()
        new = await source.tool("a__echo")
        for _ in range(3):
            await call(held)  # a running turn has what it had
            await call(new)
        await until(lambda: not any(map(is_running, wire.pids)))
        await until(lambda: not source.servers._of_sessions)
        await call(held)
        await call(new)
    assert not any(map(is_running, wire.pids))


async def test_a_server_can_be_restarted_and_stopped(tmp_path: Path):
    wire = Wire(tmp_path / "plan", tools=[tool("old")])
    write_config(tmp_path, a=wire.entry())
    async with mcp_source(tmp_path) as source:
        await source.tool("a__old")
        wire.plan(tools=[tool("new")])  # as an upgrade of its package does
        await source.servers.restart("a")
        await source.listed("a__new")
        [status] = await source.servers.status()
        assert (status.state, status.restarts) == ("ready", 1)
        await source.servers.stop("a")
        assert not any(map(is_running, wire.pids))
        with pytest.raises(KeyError):
            await source.servers.restart("b")


async def test_an_eager_server_runs_from_the_start_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "FIRST_DELAY", 0.01)
    wire = Wire(tmp_path / "plan", tools=[tool("die")], calls={"die": {"do": "die"}})
    write_config(tmp_path, a=wire.entry(start="eager"))
    async with mcp_source(tmp_path, idle_seconds=0.1) as source:
        await source.servers.start_eager()
        await until(lambda: wire.sent("tools/list"))
        with pytest.raises(ToolFailed):
            await source.call("a__die")
        await until(lambda: len(wire.pids) == 2)
