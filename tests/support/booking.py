"""A tool that asks a person while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from mochi_server.errors import JSONObject
from mochi_server.tools.base import (
    Elicitation,
    ElicitationAnswer,
    ToolBegun,
    ToolContext,
    ToolOutput,
    ToolPaused,
    ToolStep,
)

from .tools import PlainTool

WHERE = Elicitation(
    message="Where\u202e to?",
    requested_schema={
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 2}, "nights": {"type": "integer"}},
        "required": ["city"],
    },
)


class BookingTool(PlainTool):
    """Asks where to travel, and says what the person answered."""

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolStep, None]:
        yield ToolBegun()
        yield ToolPaused()
        answer = None
        async for step in context.elicit(self, WHERE):
            if isinstance(step, ElicitationAnswer):
                answer = step
            else:
                yield step
        assert answer is not None
        yield ToolBegun()
        yield ToolOutput(f"{answer.action}: {answer.content}")
