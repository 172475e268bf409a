"""What a tool may raise, and what counts as its time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.core.aio import merge
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import ToolProgress
from mochi_server.tools import report_progress
from mochi_server.tools.base import Tool, ToolContext, ToolOutput
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.folder.source import DirectorySource, FunctionTool
from mochi_server.tools.functions.registered import RegisteredSource
from mochi_server.tools.loading import FolderSpec
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.mcp import Wire, mcp_source, tool, write_config
from tests.support.tool_folders import tool_folder
from tests.support.tools import PlainTool, write_tools
from tests.support.waiting import until

CONTEXT = ToolContext(session_id="s", tool_call_id="c")


class TooSlowDisk(PlainTool):
    """Raises the TimeoutError of something that it uses."""

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolOutput, None]:
        if not arguments:
            raise TimeoutError("the disk did not answer")
        yield ToolOutput("")


@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_a_tools_own_timeout_is_told_as_what_it_is(seconds: float | None) -> None:
    tool = TooSlowDisk("slow")
    tool.timeout = seconds
    service = ToolExecutionService()
    [result] = [step async for step in service.execute(tool, {}, CONTEXT)]
    assert isinstance(result, ToolExecutionResult)
    assert result.error_message == "TimeoutError: the disk did not answer"


class Silent(PlainTool):
    """Yields no output."""

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolOutput, None]:
        if arguments:
            yield ToolOutput("")


async def test_a_tool_that_gives_nothing_is_told_as_what_it_is() -> None:
    steps = ToolExecutionService().execute(Silent("silent"), {}, CONTEXT)
    [result] = [step async for step in steps]
    assert isinstance(result, ToolExecutionResult)
    assert (result.success, result.error_message) == (False, "it ended without a result.")


SLOW_START = '''
import time
from pathlib import Path

__all__ = ["die", "work"]
__timeouts__ = {"work": 2}

with Path(__file__).with_name("starts.txt").open("a") as starts:
    starts.write("x")
time.sleep(2.1)


def die() -> str:
    """Die."""
    import os
    os._exit(1)


def work() -> str:
    """Work."""
    return "done"
'''


async def test_the_start_of_a_process_is_not_time_of_the_call(tmp_path: Path) -> None:
    """Imports may take long, and a process that has ended is nobody's fault who calls next."""
    spec = tool_folder(tmp_path / "tools", SLOW_START)
    loader, service = ProcessLoader(), ToolExecutionService()
    try:
        [folder] = await loader.load([spec])
        die, work = (
            FunctionTool(details, folder, source="directory", default_timeout=5)
            for details in folder.description.tools
        )
        [_] = [step async for step in service.execute(die, {}, CONTEXT)]
        both = [service.execute(work, {}, CONTEXT) for _ in range(2)]
        results = [step async for step in merge(both)]
        assert [each.result for each in results] == ["done", "done"]
        assert all(each.execution_time < 2 for each in results)
    finally:
        await loader.aclose()


HOPELESS = '''
import os

__all__ = ["die", "hang"]
__timeouts__ = {"hang": 1}


def die() -> str:
    """Die."""
    os._exit(3)


def hang() -> str:
    """Hang."""
    while True:
        pass
'''


async def test_the_log_has_a_line_for_a_call_that_hung_or_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """These have no traceback; whoever keeps the server looks for them all the same."""
    spec = tool_folder(tmp_path / "tools", HOPELESS)
    loader, service = ProcessLoader(), ToolExecutionService()
    try:
        [folder] = await loader.load([spec])
        for details in folder.description.tools:
            tool = FunctionTool(details, folder, source="directory", default_timeout=5)
            [_] = [step async for step in service.execute(tool, {}, CONTEXT)]
    finally:
        await loader.aclose()
    assert caplog.messages == [
        "The tool die failed: the tool's process ended with exit code 3",
        "The tool hang failed: it took longer than 1 second and was given up.",
    ]


async def test_a_slot_that_is_not_used_is_released(tmp_path: Path) -> None:
    spec = tool_folder(tmp_path / "tools", SLOW_START)
    starts = tmp_path / "tools" / "starts.txt"
    loader = ProcessLoader(WorkerOptions(workers=1))
    try:
        [folder] = await loader.load([spec])
        async with folder.slot("work", CONTEXT):
            pass
        before = starts.read_text()
        async with folder.slot("work", CONTEXT) as call:
            assert await call({}) == "done"
        assert starts.read_text() == before, "no other process was started"
    finally:
        await loader.aclose()


# Progress


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
    with anyio.fail_after(200):
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
