"""``manage.py tools run NAME '{…}'``: call a tool as a model would, without a model."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import aclosing
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.base import without_log_of_problems
from mochi_project.management.console import plain_lines
from mochi_server.backends import build_tool_loader
from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject
from mochi_server.tools.base import InvalidArguments, ToolContext, ToolFailed
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.folder.source import DirectorySource, FunctionTool

NOBODY = ToolContext(session_id="-", tool_call_id="-")
"""Who calls: no session and no model."""


class Command(BaseCommand):
    """Runs one call of one tool."""

    help = "Calls a tool of the data folder with arguments, and prints what a model would read."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``run NAME [ARGUMENTS]``."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        text = "Call a tool; nobody is asked before."
        run = actions.add_parser("run", help=text, description=text)
        run.add_argument("name", metavar="NAME", help="the tool")
        run.add_argument(
            "arguments", metavar="ARGUMENTS", nargs="?", default="{}", help="a JSON object"
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Run it; what it prints is in the log."""
        with without_log_of_problems():
            result = asyncio.run(
                run_tool(settings.MOCHI, options["name"], arguments_of(options["arguments"]))
            )
        if not result.success:
            raise CommandError(plain_lines(f"{options['name']}: {result.error_message}"))
        text = result.for_model()
        self.stdout.write(plain_lines(text) if self.stdout.isatty() else text)


def arguments_of(text: str) -> JSONObject:
    """Read the arguments.

    Raises:
        CommandError: they are no JSON object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"The arguments are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError('The arguments are not a JSON object, such as \'{"city": "Paris"}\'.')
    return found


async def run_tool(
    mochi: MochiServerSettings, name: str, arguments: JSONObject
) -> ToolExecutionResult:
    """Call a tool of the folder, within its time.

    Raises:
        CommandError: there is no such tool, or the arguments do not fit it.
    """
    loader = build_tool_loader(mochi)
    source = DirectorySource(
        mochi.tools_path, loader=loader, default_timeout=mochi.tool_timeout_seconds
    )
    try:
        tool = find(name, {tool.name: tool for tool in await source.tools()})
        try:
            fitted = await tool.validate(arguments)
        except (InvalidArguments, ToolFailed) as error:
            raise CommandError(f"{name}: {error}") from error
        execution = ToolExecutionService(result_characters=mochi.tool_result_characters)
        async with aclosing(execution.execute(tool, fitted, NOBODY)) as steps:
            async for step in steps:
                if isinstance(step, ToolExecutionResult):
                    return step
        raise AssertionError("a call has a result")
    finally:
        await source.aclose()
        await loader.aclose()


def find(name: str, tools: dict[str, FunctionTool]) -> FunctionTool:
    """Return the tool of this name.

    Raises:
        CommandError: there is none.
    """
    if name not in tools:
        known = ", ".join(sorted(tools)) or "none; see reload_tools --check"
        raise CommandError(f"There is no tool {name!r}. There are: {known}.")
    return tools[name]
