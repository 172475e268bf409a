"""A folder of tools for users of the library; the server's own is ``folder/source.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .base import Problem
from .folder.package import LoadedPackage, load_package
from .loading import FolderDescription, FolderSpec


class ToolDiscoveryService:
    """Finds the tools of a folder, for programs that use this library.

    It imports the user's code into this process, at the first question, and keeps what it found
    until :meth:`reload_tools`. What is wrong in the folder is a problem, never an exception. Blocks
    while it loads; a server has :class:`mochi_server.tools.folder.source.DirectorySource`.
    """

    def __init__(self, tools_dir: str | Path) -> None:
        self._spec = FolderSpec(path=Path(tools_dir).expanduser())
        self._loaded: LoadedPackage | None = None

    def discover(self) -> FolderDescription:
        """Describe the folder; load it if that has not been done."""
        return self._package().description

    def reload_tools(self) -> FolderDescription:
        """Load the folder again. Functions that are held stay as they were."""
        old, self._loaded = self._loaded, None
        if old is not None:
            old.forget()
        return self.discover()

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name, as they are written; coroutine functions among them."""
        return {name: tool.function for name, tool in self._package().functions.items()}

    @property
    def groups(self) -> dict[str, list[str]]:
        return {group: list(names) for group, names in self.discover().groups.items()}

    @property
    def problems(self) -> list[Problem]:
        return list(self.discover().problems)

    def _package(self) -> LoadedPackage:
        if self._loaded is None:
            self._loaded = load_package(self._spec)
        return self._loaded
