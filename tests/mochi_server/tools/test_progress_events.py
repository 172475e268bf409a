"""What tools report while they run: functions in processes, in threads, and MCP tools."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from mochi_server.protocol.events import ToolProgress
from mochi_server.tools import report_progress
from mochi_server.tools.base import Tool, ToolContext, ToolOutput
from mochi_server.tools.folder.source import DirectorySource
from mochi_server.tools.functions.registered import RegisteredSource
from mochi_server.tools.loading import FolderSpec
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.mcp import Wire, mcp_source, tool, write_config
from tests.support.tools import write_tools
from tests.support.waiting import until

CODE = '''
import asyncio
import os
import pathlib
import threading
import time

from mochi_server.tools import report_progress


def steps(count: int, seen: str = "") -> str:
    """Work in steps; with a folder, begin the next one when a file there is named after this."""
    for number in range(count):
        report_progress(number, count, f"step {number}\\u202e")
        if seen:
            time.sleep(0.1)  # of more reports than that, some are left out
        while seen and not (pathlib.Path(seen) / str(number)).exists():
            time.sleep(0.005)
    return "done"


async def later(seen: str) -> str:
    """Work in a coroutine."""
    report_progress(1)
    while not (pathlib.Path(seen) / "1").exists():
        await asyncio.sleep(0.005)
    return "done"


def odd() -> str:
    """Report what is no progress, from where nothing is read, and too late."""
    report_progress(float("nan"))
    if os.fork() == 0:
        report_progress(1)
        os._exit(0)
    os.wait()
    late = threading.Thread(target=lambda: (time.sleep(0.2), report_progress(2)))
    late.start()
    return "done"


__all__ = ["steps", "later", "odd"]
'''


SEEN = {"type": "object", "properties": {"seen": {"type": "string"}}}


async def run(tool: Tool, **arguments: Any) -> tuple[list[ToolProgress], str]:
    """What a call reports, and its result; each report makes a file in the folder ``seen``."""
    context = ToolContext(session_id="s", tool_call_id="call_1")
    reports: list[ToolProgress] = []
    with anyio.fail_after(60):
        async for step in tool.run(await tool.validate(arguments), context):
            if isinstance(step, ToolProgress):
                reports.append(step)
                if "seen" in arguments:
                    (Path(arguments["seen"]) / f"{step.progress:.0f}").touch()
            if isinstance(step, ToolOutput):
                return reports, step.content
    raise AssertionError("no result")


def new_folder(parent: Path) -> str:
    return tempfile.mkdtemp(dir=parent)


async def test_functions_in_processes_report_their_progress(tmp_path: Path):
    loader = ProcessLoader()
    folder = write_tools(tmp_path / "tools", init=CODE)
    source = DirectorySource(FolderSpec(path=folder), loader=loader, default_timeout=None)
    try:
        tools = {each.name: each for each in await source.tools()}
        reports, result = await run(tools["steps"], count=3, seen=new_folder(tmp_path))
        assert result == "done"
        assert reports[0] == ToolProgress(
            tool_call_id="call_1", progress=0, total=3, message="step 0"
        )
        assert [each.progress for each in reports] == [0, 1, 2]
        reports, _ = await run(tools["later"], seen=new_folder(tmp_path))
        assert [(each.progress, each.total) for each in reports] == [(1, None)]
        for _ in range(2):
            assert await run(tools["odd"]) == ([], "done")
        began = time.monotonic()
        reports, _ = await run(tools["steps"], count=100_000)
        assert len(reports) <= (time.monotonic() - began) / 0.1 + 1
    finally:
        await source.aclose()
        await loader.aclose()


async def test_functions_of_the_program_report_their_progress(tmp_path: Path):
    def sync(seen: str) -> str:
        """Work in a thread."""
        for number in range(10_000):
            report_progress(number)
        while not (Path(seen) / "9999").exists():
            time.sleep(0.005)
        return "done"

    async def coroutine(seen: str) -> str:
        """Work in the loop."""
        report_progress(1, 2, "half")
        await until((Path(seen) / "1").exists)
        return "done"

    source = RegisteredSource([sync, coroutine], default_timeout=None)
    try:
        tools = {each.name: each for each in await source.tools()}
        began = time.monotonic()
        reports, _ = await run(tools["sync"], seen=new_folder(tmp_path))
        assert len(reports) <= (time.monotonic() - began) / 0.1 + 1
        assert reports[-1].progress == 9_999
        reports, _ = await run(tools["coroutine"], seen=new_folder(tmp_path))
        assert [each.message for each in reports] == ["half"]
    finally:
        await source.aclose()
    report_progress(1)  # outside of a call it does nothing


async def test_mcp_tools_report_their_progress(tmp_path: Path):
    calls = {
        "few": {"do": "progress", "count": 3, "message": True},
        "many": {"do": "progress", "count": 20_000},
    }
    wire = Wire(tmp_path / "plan", tools=[tool(n, inputSchema=SEEN) for n in calls], calls=calls)
    write_config(tmp_path, a=wire.entry())
    async with mcp_source(tmp_path) as source:
        reports, _ = await run(await source.tool("a__few"), seen=new_folder(tmp_path))
        assert [each.message for each in reports] == ["step 0", "step 1", "step 2"]
        assert reports[0].total == 3
        began = time.monotonic()
        reports, result = await run(await source.tool("a__many"))
        assert result == "{}"
        assert 1 <= len(reports) <= (time.monotonic() - began) / 0.1 + 1
