"""How a folder of functions, or an installed package, is loaded and called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import JSONObject
from .base import Problem, ToolContext, ToolDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderDescription:
    """The tools of one folder, its groups and its problems."""

    folder: str
    tools: tuple[ToolDescription, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of tools by group, in the order of the package."""
    problems: tuple[Problem, ...] = ()
    is_transient: bool = False
    """Whether the problem is not in the folder, so that loading it again may succeed."""


SlotCall = Callable[[JSONObject], Coroutine[Any, Any, str]]
"""Calls the function for which there is room, as ``LoadedFolder.call``."""


class LoadedFolder(ABC):
    """One loaded state of a folder of functions; a reload makes another one beside it."""

    description: FolderDescription

    def prepare(self) -> None:  # noqa: B027 - where calls need no preparation
        """Get ready for calls, which may come soon; return at once."""

    def must_wait(self, session_id: str) -> bool:  # noqa: ARG002 - where there is room for all
        """Tell whether the session's next call has to wait for a slot."""
        return False

    def slot(self, name: str, context: ToolContext) -> AbstractAsyncContextManager[SlotCall]:  # noqa: ARG002
        """Hold room for one call of a function, and give that call; entering waits for room."""
        return nullcontext(partial(self.call, name))

    @abstractmethod
    async def call(self, name: str, arguments: JSONObject) -> str:
        """Call a function and return its result as text; cancelling ends this call only.

        Raises:
            InvalidArguments: the arguments do not fit.
            ToolFailed: the function raised, exited, crashed or used too much memory.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Give back threads or processes; running calls fail. May be called again."""


RESERVED_IN_CHATS = frozenset({"agent"})
"""Names that no tool of a conversation may have: the tool that calls agents has it."""

RESERVED_NAMES = RESERVED_IN_CHATS | {"reload", "stats"}
"""Names that no tool may have, as ``/tools/reload`` and ``/tools/stats`` are other routes."""


class PackageEntry(NamedTuple):
    """What an entry point of an installed package names."""

    group: str
    """Name of the entry point, and of the group of its tools."""
    module: str
    function: str
    """Dotted path in the module; empty: all tools of the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSpec:
    """A folder to load, or an installed package."""

    path: Path
    """Of a package: its folder, or its only file."""
    entry: PackageEntry | None = None
    """What is imported, as any program does it, instead of the files of the folder."""
    subfolders: bool = True
    """Whether each sub-folder with an ``__init__.py`` is a package of tools as well."""
    reserved: frozenset[str] = RESERVED_NAMES

    def is_missing(self) -> bool:
        """Tell whether there is nothing to load; a package that is named and missing is a fault."""
        return self.entry is None and not self.path.exists()


class ToolLoader(ABC):
    """Loads folders of tools."""

    @abstractmethod
    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """Load each; what is wrong in a folder is among its problems and raises nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every folder that was loaded; may be called again."""
