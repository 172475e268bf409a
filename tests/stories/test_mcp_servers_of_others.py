"""MCP servers that nobody here wrote: discovered, called in turns, killed in a call, replaced."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.errors import McpResourceNotFound
from mochi_server.protocol.events import Event
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.base import ToolFailed
from tests.support.chromium import CHROMIUM, needs_chromium
from tests.support.fake_ollama import FakeOllama
from tests.support.mcp import call as call_tool
from tests.support.mcp import mcp_source, write_config
from tests.support.turns import Bench, bench, call, read_all, read_until
from tests.support.waiting import until

SERVERS = Path(__file__).parents[1] / "mcp_servers"
HAS_NODE = bool(shutil.which("node") and shutil.which("npm"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
node = pytest.mark.skipif(not HAS_NODE, reason="node and npm are not installed")


def python(module: str, *args: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", module, *args]}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of npm."""
    folder = tmp_path_factory.mktemp("npm") / "servers"
    shutil.copytree(SERVERS, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True)
    return folder / "node_modules" / ".bin"


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "data", ollama) as found:
        yield found


@pytest.fixture
def page() -> Iterator[str]:
    """The address of a web page."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = self.path == "/page.html"
            self.send_response(200 if is_page else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><body><h1>Mochi</h1><p>Rice, pounded.</p></body></html>")

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/page.html"
        server.shutdown()
        thread.join()


def results(events: list[Event]) -> dict[str, Any]:
    payloads = [dict(event.payload()) for event in events if event.type == "tool_result"]
    assert all(each["success"] for each in payloads), payloads
    return {each["tool_name"]: each["result"] for each in payloads}


async def session(engine: Bench, *tools: str) -> str:
    policy = ToolExecutionPolicy.NEVER_CONFIRM
    return await engine.session(tool_settings=ToolSettings(tools=tools, execution_policy=policy))


async def known(engine: Bench, *tools: str) -> None:
    """Wait until these are known, however long their servers take to start."""
    for name in tools:
        for _ in range(4):
            if name in (await engine.runtime.tools.inventory()).tools:
                break
            await engine.runtime.tools.select(ToolSettings(tools=[name]))


async def test_the_servers_of_pypi_work_in_a_turn(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, page: str
) -> None:
    repo = tmp_path / "repo"
    await anyio.run_process(["git", "init", "-q", "-b", "trunk", str(repo)])
    (repo / "new.txt").write_text("new")
    write_config(
        tmp_path / "data",
        time=python("mcp_server_time"),
        git=python("mcp_server_git"),
        fetch=python("mcp_server_fetch", "--allow-private-ips"),
    )
    names = "time__convert_time", "git__git_status", "fetch__fetch"
    await known(engine, *names)
    chosen = await session(engine, *names)
    zones = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
    ollama.reply(
        tool_calls=[
            call("time__convert_time", time="12:00", **zones),
            call("git__git_status", repo_path=str(repo)),
            call("fetch__fetch", url=page),
        ]
    )
    ollama.reply(["Done."])
    found = results(await engine.turn(chosen))
    assert "21:00" in found["time__convert_time"]
    assert "new.txt" in found["git__git_status"]
    assert "Rice, pounded." in found["fetch__fetch"]


@node
async def test_the_servers_of_npm_work_in_a_turn(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, programs: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    write_config(
        tmp_path / "data",
        all={"command": str(programs / "mcp-server-everything")},
        files={"command": str(programs / "mcp-server-filesystem"), "args": [str(files)]},
        memory={"command": str(programs / "mcp-server-memory"), "env": memory},
    )
    names = [
        "all__get-sum",
        "all__get-tiny-image",
        "all__trigger-long-running-operation",
        "files__write_file",
        "memory__create_entities",
    ]
    await known(engine, *names)
    chosen = await session(engine, *names)
    entity = {"name": "Mochi", "entityType": "cake", "observations": ["soft"]}
    ollama.reply(
        tool_calls=[
            call("all__get-sum", a="2", b=3),
            call("all__get-tiny-image"),
            call("all__trigger-long-running-operation", duration=1, steps=4),
            call("files__write_file", path=str(files / "a.txt"), content="hello"),
            call("memory__create_entities", entities=[entity]),
        ]
    )
    ollama.reply(["Done."])
    events = await engine.turn(chosen)
    found = results(events)
    assert "5" in found["all__get-sum"]
    assert "[image: image/png, " in found["all__get-tiny-image"]
    assert (files / "a.txt").read_text() == "hello"
    assert "soft" in (tmp_path / "memory.jsonl").read_text()
    progress = [dict(event.payload()) for event in events if event.type == "tool_progress"]
    assert [each["total"] for each in progress] == [4] * len(progress)


@node
async def test_prompts_and_resources_of_a_server_are_used(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, programs: Path
) -> None:
    write_config(tmp_path / "data", all={"command": str(programs / "mcp-server-everything")})
    await known(engine, "all__echo")
    runtime = engine.runtime
    prompts = {each.name: each for each in await runtime.mcp_prompts.list()}
    city = prompts["all__args-prompt"].described.arguments[0]
    assert (city.name, city.required) == ("city", True)
    assert "Lyon" in await runtime.prompts.text_for_session("all__args-prompt", {"city": "Lyon"})
    page = await runtime.mcp_resources.list("all")
    assert page.templates
    uri = next(each.uri for each in page.resources if each.uri.endswith("architecture.md"))
    chosen = await session(engine)
    attached = [
        await runtime.mcp_resources.read("all", each, session_id=chosen)
        for each in (uri, "demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/1")
    ]
    ollama.reply(["I see."])
    await engine.turn(chosen, attachments=attached)
    sent = ollama.chats[-1]["messages"][-1]["content"]
    assert "# Everything Server" in sent
    assert "plaintext" in sent
    assert "base64 blob" in sent
    with pytest.raises(McpResourceNotFound):
        await runtime.mcp_resources.read("all", "demo://nothing", session_id=chosen)


@node
@needs_chromium
async def test_a_browser_takes_a_picture_without_the_argument_that_has_a_default(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, programs: Path
) -> None:
    arguments = ["--headless", "--no-sandbox", "--executable-path", str(CHROMIUM)]
    arguments += ["--output-dir", str(tmp_path / "pictures"), "--isolated"]
    entry = {"command": str(programs / "playwright-mcp"), "args": arguments}
    write_config(tmp_path / "data", browser=entry)
    name = "browser__browser_take_screenshot"
    await known(engine, name)
    [tool] = [
        each
        for each in (await engine.runtime.tools.inventory()).tools.values()
        if each.name == name
    ]
    assert "scale" not in tool.parameters.get("required", [])
    chosen = await session(engine, name)
    ollama.reply(tool_calls=[call(name)])
    ollama.reply(["Done."])
    assert "[image: image/png, " in results(await engine.turn(chosen))[name]


@node
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_server_that_is_killed_in_a_call_works_again_in_the_next_turn(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, programs: Path
) -> None:
    write_config(tmp_path / "data", all={"command": str(programs / "mcp-server-everything")})
    names = "all__trigger-long-running-operation", "all__echo"
    await known(engine, *names)
    chosen = await session(engine, *names)
    ollama.reply(tool_calls=[call(names[0], duration=300, steps=1000)])
    ollama.reply(["It ended."])
    reader = (await engine.start(chosen)).reader()
    await read_until(reader, "tool_progress")
    for pid in children_named("mcp-server-everything"):
        os.kill(pid, signal.SIGKILL)
    [failed] = [
        dict(event.payload()) for event in await read_all(reader) if event.type == "tool_result"
    ]
    assert failed["success"] is False
    assert "ended during the call: its process was killed by signal SIGKILL" in str(failed)
    [status] = await engine.runtime.mcp.status()
    assert status.state == "failed"
    await until(lambda: not engine.runtime.mcp.servers["all"].is_waiting)
    ollama.reply(tool_calls=[call("all__echo", message="still here")])
    ollama.reply(["Done."])
    assert "still here" in results(await engine.turn(chosen))["all__echo"]
    [status] = await engine.runtime.mcp.status()
    assert (status.state, status.restarts) == ("ready", 1)


async def test_a_server_that_is_replaced_has_other_tools(tmp_path: Path) -> None:
    write_config(tmp_path, one=python("mcp_server_time"))
    async with mcp_source(tmp_path) as source:
        held = await source.tool("one__convert_time")
        write_config(tmp_path, one=python("mcp_server_git"))
        with pytest.raises(ToolFailed):
            await source.call("one__git_status", repo_path=str(tmp_path))
        assert not any("time" in name for name in await source.names())
        zones = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in await call_tool(held, time="12:00", **zones)


def children_named(name: str) -> list[int]:
    """Processes that this one has started with this in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and name in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found
