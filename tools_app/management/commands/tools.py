"""``manage.py tools run NAME '{…}'``: call a tool as a model would, without a model."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.console import plain_lines
from mochi_project.management.folders import tool_loader
from mochi_server.backends import build_tool_sources
from mochi_server.config import MochiServerSettings
from mochi_server.core.json_text import parse_json
from mochi_server.errors import JSONObject
from mochi_server.tools.base import InvalidArguments, Tool, ToolContext
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService

NOBODY = ToolContext(session_id="-", tool_call_id="-")
"""Who calls: no session and no model."""


class Command(BaseCommand):
    """Runs one call of one tool."""

    help = (
        "Calls a tool of the data folder, or of an installed package, with arguments, and prints "
        "what a model would read."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        text = "Call a tool; nobody is asked before."
        run = actions.add_parser("run", help=text, description=text)
        run.add_argument("name", metavar="NAME", help="the tool")
        run.add_argument(
            "arguments", metavar="ARGUMENTS", nargs="?", default="{}", help="a JSON object"
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Run it; what it prints is in the log."""
        arguments = arguments_of(options["arguments"])
        result = asyncio.run(run_tool(settings.MOCHI, options["name"], arguments))
        if not result.success:
            raise CommandError(plain_lines(f"{options['name']}: {result.error_message}"))
        text = result.for_model()
        self.stdout.write(plain_lines(text) if self.stdout.isatty() else text)


def arguments_of(text: str) -> JSONObject:
    """Read the arguments, or raise CommandError."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise CommandError(f"The arguments are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError('The arguments are not a JSON object, such as \'{"city": "Paris"}\'.')
    return found


async def run_tool(
    mochi: MochiServerSettings, name: str, arguments: JSONObject
) -> ToolExecutionResult:
    """Call a tool of the folder or of a package, within its time.

    Raises:
        CommandError: there is no such tool, or the arguments do not fit it.
    """
    async with tool_loader(mochi) as loader:
        tools: dict[str, Tool] = {}
        for source in build_tool_sources(mochi, loader):
            tools.update({tool.name: tool for tool in await source.tools()})
            if name in tools:
                break
        if name not in tools:
            known = ", ".join(sorted(tools)) or "none; see reload_tools --check"
            raise CommandError(f"There is no tool {name!r}. There are: {known}.")
        try:
            fitted = await tools[name].validate(arguments)
        except InvalidArguments as error:
            raise CommandError(f"{name}: {error}") from error
        execution = ToolExecutionService()
        steps = [step async for step in execution.execute(tools[name], fitted, NOBODY)]
        return next(step for step in steps if isinstance(step, ToolExecutionResult))
