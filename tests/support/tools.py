"""Tools and folders of tools for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from mochi_server.errors import JSONObject
from mochi_server.tools.base import Problem, Tool, ToolContext, ToolOutput, ToolSource


class PlainTool(Tool):
    """A tool that is no function of a folder, as an MCP server has them; says its own name."""

    def __init__(
        self, name: str, *, source: str = "plain", destructive: bool | None = None
    ) -> None:
        self.name = name
        self.description = f"Says {name}."
        self.parameters = {
            "type": "object",
            "properties": {
                "loud": {"type": "boolean", "description": "Whether to shout."},
                "times": {"type": ["integer", "null"]},
                "odd": True,
            },
        }
        self.source = source
        self.destructive = destructive
        self.sequential = False
        self.timeout = None

    async def validate(self, arguments: JSONObject) -> JSONObject:
        return arguments

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolOutput, None]:
        yield ToolOutput(self.name)


class PlainSource(ToolSource):
    """Some tools and groups; counts how often it is used."""

    def __init__(
        self,
        name: str,
        tools: Sequence[str] = (),
        groups: Mapping[str, Sequence[str]] | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.name = name
        self.found = [PlainTool(tool, source=name) for tool in tools]
        self._groups = groups or {}
        self._problems = problems
        self.asked = self.reloads = self.closed = 0

    async def tools(self) -> Sequence[Tool]:
        self.asked += 1
        return self.found

    def groups(self) -> Mapping[str, Sequence[str]]:
        return self._groups

    def problems(self) -> Sequence[Problem]:
        return self._problems

    async def reload(self) -> None:
        self.reloads += 1

    async def aclose(self) -> None:
        self.closed += 1


def function(name: str, body: str | None = None, *, before: str = "") -> str:
    """The text of a tool without arguments that returns its name, or does something else."""
    body = body if body is not None else f"return {name!r}"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f'{before}\ndef {name}() -> str:\n    """Do {name}."""\n{lines}\n'


def noting(place: Path) -> str:
    """Lines of a module that add an ``x`` to a file, once for each import."""
    return f"with open({str(place)!r}, 'a') as file:\n    file.write('x')\n"


def write_tools(folder: Path, **files: str) -> Path:
    """Make a folder of tools, or add to one: the text of each module, ``init`` is the package."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = folder / ("__init__.py" if name == "init" else f"{name}.py")
        place.write_text(text)
    return folder
