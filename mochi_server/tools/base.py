"""What a tool is, where tools come from, and how a folder of functions is loaded and called."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import JSONObject
from ..protocol.events import Event


class InvalidArguments(ValueError):
    """The arguments do not fit the tool; the text tells the model what is wrong."""


class ToolFailed(Exception):
    """A call ended without a result; the text tells the model why."""


Severity = Literal["warning", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why something in a folder of tools cannot be used, or is left out."""

    file: str
    """Absolute path."""
    line: int | None
    """From 1; null when the whole file is meant."""
    reason: str
    tool: str | None = None
    """The name of the tool that is missing for this reason."""
    severity: Severity = "warning"
    """``hint``: nothing is wrong, but functions are left out."""

    @property
    def is_hint(self) -> bool:
        """Whether nothing is wrong."""
        return self.severity == "hint"

    def __str__(self) -> str:
        """``/tools/__init__.py:3: …``, as compilers have it."""
        return f"{self.file}:{self.line or 1}: {self.reason}"

    def as_json(self) -> JSONObject:
        """``{"file", "line", "reason", "tool", "severity"}``."""
        return {
            "file": self.file,
            "line": self.line,
            "reason": self.reason,
            "tool": self.tool,
            "severity": self.severity,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """Everything about a function but the function: what travels between processes."""

    name: str
    description: str
    parameters: JSONObject
    """JSON Schema of the arguments: ``{"type": "object", "properties", "required", "$defs"?}``."""
    short_parameters: JSONObject
    """``{"a": {"type": "float", "description": "…"}}``, as ``GET /tools`` lists them."""
    file: str
    """Absolute path of the source."""
    line: int
    source: str
    """The text of the function."""
    is_async: bool = False
    destructive: bool | None = None
    """Null: the package does not say."""
    sequential: bool = False
    timeout: float | None = None
    """Seconds; null: the server's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderDescription:
    """What one folder of tools has."""

    folder: str
    tools: tuple[ToolDescription, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of tools by group, in the order of the package."""
    problems: tuple[Problem, ...] = ()
    passing: bool = False
    """Whether nothing in the folder is to blame, so that loading it again may well succeed."""


class LoadedFolder(ABC):
    """One loaded state of one folder; a reload makes a new one and leaves this as it is."""

    description: FolderDescription

    @abstractmethod
    async def validate(self, name: str, arguments: JSONObject) -> JSONObject:
        """The arguments as the function will get them, coerced, in JSON form.

        Raises:
            InvalidArguments: they do not fit.
            ToolFailed: nobody is there to look at them.
        """

    def must_wait(self, session_id: str) -> bool:  # noqa: ARG002 - where room is short
        """Whether the next call of a session has to wait for its place."""
        return False

    def place(self, name: str, context: ToolContext) -> AbstractAsyncContextManager[object]:  # noqa: ARG002
        """Room for one call of a function; waits while there is none, before the call's time."""
        return nullcontext()

    @abstractmethod
    async def call(self, name: str, arguments: JSONObject) -> str:
        """Call the function; cancelling gives the call up and hurts no other.

        Raises:
            InvalidArguments: the arguments do not fit.
            ToolFailed: it raised, exited, died, or used too much memory.
        """

    def given_up(self, name: str) -> Collection[asyncio.Future[Any]]:  # noqa: ARG002
        """Calls of the function that nobody waits for any more and that go on all the same.

        Those of earlier loads of the folder too. Each is done when it has ended.
        """
        return ()

    @abstractmethod
    async def aclose(self) -> None:
        """Give back threads or processes; running calls fail. May be called again."""


TAKEN_IN_TURNS = frozenset({"agent"})
"""The tool that calls agents is offered beside others."""
TAKEN = TAKEN_IN_TURNS | {"reload", "stats"}
"""``/tools/reload`` and ``/tools/stats`` are no tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSpec:
    """A folder to load."""

    path: Path
    subfolders: bool = True
    """Whether each sub-folder with an ``__init__.py`` is a package of tools as well."""
    taken: frozenset[str] = TAKEN
    """Names that no tool of it may have."""


class ToolLoader(ABC):
    """Loads folders: in threads of this process, or in processes of their own."""

    @abstractmethod
    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """Load each; never fails because of what is in them: that is among the problems."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every folder that was loaded; may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Who calls. The chat hands its tools more than this (``chat.tool_calls.CallContext``)."""

    session_id: str
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call returned, in words for the model."""

    content: str


@dataclass(frozen=True, slots=True)
class ToolBegun:
    """The call has waited for its place and runs from now on: its time counts from here."""


class Tool(ABC):
    """Something that a model can call."""

    name: str
    description: str
    parameters: JSONObject
    """JSON Schema of the arguments."""
    source: str
    """Which :class:`ToolSource` it came from: ``directory``, ``agents``, ``mcp:{server}``."""
    destructive: bool | None
    """Null: nobody says so, which counts as destructive."""
    sequential: bool
    """Whether it runs alone: beside no other call of the reply, and not twice at a time."""
    timeout: float | None
    """Seconds; null for no limit."""

    def schema(self) -> JSONObject:
        """What the model is told: ``{"type": "function", "function": {…}}``."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    @abstractmethod
    async def validate(self, arguments: JSONObject) -> JSONObject:
        """The arguments, coerced.

        Raises:
            InvalidArguments: they do not fit.
            ToolFailed: nobody is there to look at them.
        """

    @abstractmethod
    def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolBegun | ToolOutput, None]:
        """Events while it works, if it has any, and exactly one output, last.

        Raises (while it is iterated):
            InvalidArguments, ToolFailed.
        """

    def given_up(self) -> Collection[asyncio.Future[Any]]:
        """Calls that nobody waits for any more and that go on all the same; done at their end."""
        return ()


class ToolSource(ABC):
    """Where tools come from."""

    name: str

    @abstractmethod
    async def tools(self) -> Sequence[Tool]:
        """All of them, as they are now; looks for changes by itself."""

    def groups(self) -> Mapping[str, Sequence[str]]:
        """Names of tools by group, as ``tools()`` found them last."""
        return {}

    def problems(self) -> Sequence[Problem]:
        """What could not be used, as ``tools()`` found it last."""
        return ()

    @abstractmethod
    async def reload(self) -> None:
        """Load everything again, changed or not; running calls go on with what they have."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give everything back; may be called again."""
