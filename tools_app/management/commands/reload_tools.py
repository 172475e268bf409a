"""``manage.py reload_tools``: look at the tools, and make running servers load them again."""

from __future__ import annotations

from pathlib import Path

from mochi_project.management.base import FolderContents, ReloadCommand
from mochi_project.management.folders import load_tools
from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject
from mochi_server.tools.base import ToolDescription
from mochi_server.tools.folder.snapshot import RELOAD_STAMP
from mochi_server.tools.loading import FolderDescription

SAID = {True: "yes", False: "no", None: "unknown"}


class Command(ReloadCommand):
    """Loads the folder of tools, says what is in it, and tells running servers."""

    help = (
        "Loads the folder of tools, prints tools and problems, and makes every running server "
        "on this data folder load it again."
    )
    noun = "tools"
    columns = ("NAME", "GROUPS", "DESTRUCTIVE", "TIMEOUT", "FILE")
    stamp = RELOAD_STAMP

    def find(self, mochi: MochiServerSettings) -> FolderContents:
        found = load_tools(mochi)
        return FolderContents(
            folder=found.folder,
            items=[item(tool, found, mochi) for tool in found.tools],
            rows=[row(tool, found, mochi) for tool in found.tools],
            problems=found.problems,
        )


def item(tool: ToolDescription, found: FolderDescription, mochi: MochiServerSettings) -> JSONObject:
    return {
        "name": tool.name,
        "groups": [*groups_of(tool, found)],
        "destructive": tool.destructive,
        "sequential": tool.sequential,
        "timeout": timeout_of(tool, mochi),
        "is_async": tool.is_async,
        "file": tool.file,
        "line": tool.line,
    }


def row(tool: ToolDescription, found: FolderDescription, mochi: MochiServerSettings) -> list[str]:
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
    return [group for group, names in found.groups.items() if tool.name in names]


def timeout_of(tool: ToolDescription, mochi: MochiServerSettings) -> float:
    return mochi.tool_timeout_seconds if tool.timeout is None else tool.timeout
