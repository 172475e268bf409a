"""Functions of the program that uses the library, as tools: ``Runtime(tools=[function])``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..base import TAKEN, FolderDescription, ToolSource
from ..folder.metadata import Marks
from ..folder.package import LoadedPackage, PythonTool, python_tool
from ..folder.source import FunctionTool
from ..schema import ToolSchemaService
from .signature import Function, Unsupported
from .threads import Runner, ThreadFolder

PLACE = "the program"
"""Stands for the folder of the functions, and for the file of one whose source is not found."""


class RegisteredSource(ToolSource):
    """Functions of this process, called in threads of it; an ``async def`` in its event loop."""

    name = "registered"

    def __init__(self, functions: Sequence[Function], *, default_timeout: float | None) -> None:
        """Describe the functions.

        Raises:
            ValueError: one cannot be a tool, or two have one name.
        """
        made: dict[str, PythonTool] = {}
        for function in functions:
            tool = _tool_of(function)
            name = tool.description.name
            if name in made:
                raise ValueError(f"Two of the tools have the name {name!r}.")
            made[name] = tool
        descriptions = tuple(tool.description for tool in made.values())
        self._package = LoadedPackage(FolderDescription(folder=PLACE, tools=descriptions), made)
        self._default_timeout = default_timeout
        self._runner = Runner()
        self._folder: ThreadFolder | None = None
        self._tools: Sequence[FunctionTool] = ()

    async def tools(self) -> Sequence[FunctionTool]:
        """See the base class; they never change."""
        if self._folder is None:  # it belongs to the event loop that runs now
            folder = self._folder = ThreadFolder(self._package, self._runner, lambda _: None)
            self._tools = [
                FunctionTool(
                    details, folder, source=self.name, default_timeout=self._default_timeout
                )
                for details in self._package.description.tools
            ]
        return self._tools

    async def reload(self) -> None:
        """See the base class; there is nothing to load."""

    async def aclose(self) -> None:
        """See the base class."""
        if self._folder is not None:
            await self._folder.aclose()
        await self._runner.aclose()


def _tool_of(function: Function) -> PythonTool:
    """Make the tool of a function.

    Raises:
        ValueError: it cannot be one; the text says why.
    """
    named: object = function.func if isinstance(function, partial) else function
    name = getattr(named, "__name__", None) or getattr(named, "name", None)
    name = name if isinstance(name, str) else type(named).__name__
    try:
        return python_tool(
            function,
            name,
            marks=Marks(),
            schemas=ToolSchemaService(),
            taken=TAKEN,
            fallback=Path(PLACE),
        )
    except Unsupported as error:
        raise ValueError(f"{name!r} cannot be a tool: it {error}") from error
