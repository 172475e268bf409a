"""What a tool may raise, and what counts as its time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mochi_server.core.aio import merge
from mochi_server.errors import JSONObject
from mochi_server.tools.base import ToolContext, ToolOutput
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.tool_folders import tool_folder
from tests.support.tools import PlainTool

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
