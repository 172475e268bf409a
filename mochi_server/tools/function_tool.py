"""A Python function of a loaded folder, as the server offers it to models."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cached_property

from ..errors import JSONObject
from ..protocol.events import Event, ToolCallWaiting
from .base import LoadedFolder, Tool, ToolBegun, ToolContext, ToolDescription, ToolOutput
from .functions.schema_arguments import SchemaArguments


class FunctionTool(Tool):
    """A function of a loaded folder."""

    details: ToolDescription

    def __init__(
        self,
        details: ToolDescription,
        folder: LoadedFolder,
        *,
        source: str,
        default_timeout: float | None,
    ) -> None:
        self.details = details
        self.name = details.name
        self.description = details.description
        self.parameters = details.parameters
        self.source = source
        self.destructive = details.destructive
        self.sequential = details.sequential
        self.timeout = details.timeout if details.timeout is not None else default_timeout
        self._folder = folder

    @cached_property
    def _arguments(self) -> SchemaArguments:
        return SchemaArguments(self.parameters, self.details.unchecked)

    async def validate(self, arguments: JSONObject) -> JSONObject:
        """Check the arguments against the schema, here; the folder's code is not asked.

        What only that code can check, such as a parameter with a validator, is let through.
        """
        return self._arguments.validate(arguments)

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolBegun | ToolOutput, None]:
        """Call the function; the one event says that the call waits for others."""
        if self._folder.must_wait(context.session_id):
            yield ToolCallWaiting(tool_name=self.name, tool_call_id=context.tool_call_id)
        async with self._folder.slot(self.name, context):
            yield ToolBegun()
            yield ToolOutput(await self._folder.call(self.name, arguments))
