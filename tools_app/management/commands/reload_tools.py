"""``manage.py reload_tools``: look at the tools, and make running servers load them again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from mochi_project.commands import table, tell_servers
from mochi_server.config import MochiServerSettings
from mochi_server.tools.base import FolderDescription, ToolDescription
from mochi_server.tools.fingerprint import RELOAD_STAMP
from tools_app.loading import describe_tools

HEAD = ("NAME", "GROUPS", "DESTRUCTIVE", "TIMEOUT", "FILE")
SAID = {True: "yes", False: "no", None: "unknown"}


class Command(BaseCommand):
    """Loads the folder of tools, says what is in it, and tells running servers."""

    help = (
        "Loads the folder of tools, prints tools and problems, and makes every running server "
        "on this data folder load it again."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``reload_tools [--json] [--check]``."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        parser.add_argument(
            "--check",
            action="store_true",
            help="Only look: exit with 1 if there are problems, and leave servers alone.",
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Print what is there; exit or tell the servers."""
        mochi: MochiServerSettings = settings.MOCHI
        with redirect_stdout(sys.stderr):  # a module may print; that must not stand in our JSON
            found = describe_tools(mochi)
        lines = json_lines(found, mochi) if options["json"] else text_lines(found, mochi)
        for line in lines:
            self.stdout.write(line)
        if not options["check"]:
            tell_servers(mochi.state_path / RELOAD_STAMP)
        elif found.problems:
            sys.exit(1)


def json_lines(found: FolderDescription, mochi: MochiServerSettings) -> Iterator[str]:
    """``{"folder", "tools": […], "problems": […]}``."""
    tools = [
        {
            "name": tool.name,
            "groups": groups_of(tool, found),
            "destructive": tool.destructive,
            "sequential": tool.sequential,
            "timeout": timeout_of(tool, mochi),
            "is_async": tool.is_async,
            "file": tool.file,
            "line": tool.line,
        }
        for tool in found.tools
    ]
    problems = [problem.as_json() for problem in found.problems]
    yield json.dumps({"folder": found.folder, "tools": tools, "problems": problems}, indent=2)


def text_lines(found: FolderDescription, mochi: MochiServerSettings) -> Iterator[str]:
    """A table of the tools, then the problems."""
    if found.tools:
        yield from table([HEAD, *(row(tool, found, mochi) for tool in found.tools)])
    else:
        yield f"No tools in {found.folder}."
    for problem in found.problems:
        name = f" ({problem.tool})" if problem.tool else ""
        yield f"problem: {problem.file}:{problem.line or 1}: {problem.reason}{name}"


def row(tool: ToolDescription, found: FolderDescription, mochi: MochiServerSettings) -> list[str]:
    """The cells of one tool; its file relative to the folder."""
    place = Path(tool.file)
    if place.is_relative_to(found.folder):
        place = place.relative_to(found.folder)
    return [
        tool.name,
        ", ".join(groups_of(tool, found)),
        SAID[tool.destructive],
        f"{timeout_of(tool, mochi):g} s",
        f"{place}:{tool.line}",
    ]


def groups_of(tool: ToolDescription, found: FolderDescription) -> list[str]:
    """The groups that a tool is in."""
    return [group for group, names in found.groups.items() if tool.name in names]


def timeout_of(tool: ToolDescription, mochi: MochiServerSettings) -> float:
    """Seconds: its own, or the server's."""
    return mochi.tool_timeout_seconds if tool.timeout is None else tool.timeout
