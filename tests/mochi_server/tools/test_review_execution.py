"""What a tool that is no function of ours may raise."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from mochi_server.errors import JSONObject
from mochi_server.tools.base import ToolContext, ToolOutput
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from tests.support.tools import PlainTool


class TooSlowDisk(PlainTool):
    """Raises the TimeoutError of something that it uses."""

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolOutput, None]:
        if not arguments:
            raise TimeoutError("the disk did not answer")
        yield ToolOutput("")


@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_a_tools_own_timeout_is_told_as_what_it_is(timeout: float | None) -> None:
    tool = TooSlowDisk("slow")
    tool.timeout = timeout
    service = ToolExecutionService()
    context = ToolContext(session_id="s", tool_call_id="c")
    [result] = [step async for step in service.execute(tool, {}, context)]
    assert isinstance(result, ToolExecutionResult)
    assert result.error_message == "TimeoutError: the disk did not answer"
