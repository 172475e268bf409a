"""The tools of the workspace server: what a model is told about each, and what it does."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeVar

import anyio.to_thread
from mcp_types import CallToolResult, ImageContent, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.media import image_type
from ..core.problems import placed_text
from . import isolated, search
from .command import CommandResult, CommandRunner
from .content import (
    MOST_BYTES,
    MOST_LINES,
    EditProblem,
    excerpt,
    is_binary,
    printable,
    replace_text,
    size_text,
)
from .folder import ROOT, FileEntry, WorkspaceFolder
from .globs import matches

COMMAND_SECONDS = 30
"""Longest run of a command."""

MOST_OUTPUT = 30_000
"""Most bytes of a command's output, and of its errors, that a model is shown."""

MOST_ENTRIES = 1_000
"""Most files and folders of a list."""

MOST_IMAGE_BYTES = 4_000_000

A = TypeVar("A", bound=BaseModel)


READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class WorkspaceArguments(BaseModel):
    """A tool and its arguments; unknown ones are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")

    description: ClassVar[str]
    annotations: ClassVar[ToolAnnotations]


class ReadFile(WorkspaceArguments):
    """Arguments of ``read_file``."""

    description: ClassVar[str] = (
        "Read a file of the workspace: a text (up to "
        f"{MOST_LINES:,} lines at once, see offset), or a PNG, JPEG, GIF or WebP image."
    )
    annotations: ClassVar[ToolAnnotations] = READS

    path: str = Field(description="The file, relative to the workspace: src/main.py.")
    offset: int = Field(default=1, ge=1, description="First line of a text, from 1.")
    limit: int = Field(default=MOST_LINES, ge=1, le=MOST_LINES, description="How many lines.")


class WriteFile(WorkspaceArguments):
    """Arguments of ``write_file``."""

    description: ClassVar[str] = (
        "Create a text file in the workspace, with the folders above it, or replace "
        "the whole content of one. To change a part of a file, use edit_file."
    )
    annotations: ClassVar[ToolAnnotations] = ToolAnnotations(
        destructive_hint=True, idempotent_hint=True, open_world_hint=False
    )

    path: str = Field(description="The file, relative to the workspace: src/main.py.")
    content: str = Field(max_length=MOST_BYTES, description="The whole new content.")


class EditFile(WorkspaceArguments):
    """Arguments of ``edit_file``."""

    description: ClassVar[str] = (
        "Replace a text in a file of the workspace by another one. Read the file "
        "first: old_text must be exactly what is there, and occur once."
    )
    annotations: ClassVar[ToolAnnotations] = ToolAnnotations(
        destructive_hint=True, open_world_hint=False
    )

    path: str = Field(description="The file, relative to the workspace: src/main.py.")
    old_text: str = Field(
        min_length=1,
        description="Text of the file, exactly as it is there, with its indentation and newlines.",
    )
    new_text: str = Field(max_length=MOST_BYTES, description="What to put in its place.")
    replace_all: bool = Field(
        default=False,
        description="Replace it everywhere. Otherwise old_text must occur exactly once.",
    )


class ListFiles(WorkspaceArguments):
    """Arguments of ``list_files``."""

    description: ClassVar[str] = (
        f"List a folder of the workspace, at most {MOST_ENTRIES:,} entries. The "
        f"contents of {', '.join(sorted(search.SKIPPED))} are left out of a "
        "recursive list."
    )
    annotations: ClassVar[ToolAnnotations] = READS

    path: str = Field(default=ROOT, description="The folder, relative to the workspace.")
    recursive: bool = Field(default=False, description="List the folders in it as well.")
    pattern: str | None = Field(
        default=None,
        max_length=1_000,
        description="List only files, at any depth, that match this glob: *.py or src/**/*.ts.",
    )


class SearchFiles(WorkspaceArguments):
    """Arguments of ``search_files``."""

    description: ClassVar[str] = (
        "Search the text files of the workspace for a pattern, and list the lines "
        f"that match as path:line: text, at most {search.MOST_MATCHES}. Takes at most "
        f"{search.SECONDS} seconds."
    )
    annotations: ClassVar[ToolAnnotations] = READS

    pattern: str = Field(
        min_length=1,
        max_length=1_000,
        description="A regular expression (of Python), searched in each line.",
    )
    path: str = Field(
        default=ROOT, description="The folder or file to search, relative to the workspace."
    )
    glob: str | None = Field(
        default=None,
        max_length=1_000,
        description="Search only files that match this glob: *.py or src/**/*.ts.",
    )
    ignore_case: bool = Field(default=False, description="Treat capitals as small letters.")
    regex: bool = Field(default=True, description="False: pattern is plain text.")


class ExecuteCommand(WorkspaceArguments):
    """Arguments of ``execute_command``."""

    description: ClassVar[str] = (
        "Run a command with bash in the workspace folder, and return its exit code, "
        f"output and errors. It has no input, and at most {COMMAND_SECONDS} seconds; "
        "processes in the background are ended with it. Each command starts in the "
        "workspace folder, with no memory of the one before. Of long output, the "
        "middle is left out."
    )
    annotations: ClassVar[ToolAnnotations] = ToolAnnotations(destructive_hint=True)

    command: str = Field(min_length=1, max_length=100_000, description="The command, for bash.")


Content = str | ImageContent


class ToolProblem(Exception):
    """Why a call failed; for the model."""


class WorkspaceTool(NamedTuple):
    """A tool: what it takes, and its function."""

    arguments: type[WorkspaceArguments]
    call: Callable[[Any], Awaitable[Content]]


class WorkspaceTools:
    """The tools of one folder, called by name."""

    def __init__(self, path: Path, runner: CommandRunner | None = None) -> None:
        """Open the folder.

        Args:
            path: The folder.
            runner: Runs its commands; None for one that adopts no processes.

        Raises:
            OSError: There is no such folder.
        """
        self.path = path
        self._folder = WorkspaceFolder(path)
        self._runner = runner or CommandRunner()
        self._changing = Lock()
        self._tools = {
            "read_file": WorkspaceTool(ReadFile, partial(_in_thread, self._read_file)),
            "write_file": WorkspaceTool(WriteFile, partial(_in_thread, self._write_file)),
            "edit_file": WorkspaceTool(EditFile, partial(_in_thread, self._edit_file)),
            "list_files": WorkspaceTool(ListFiles, partial(_in_thread, self._list_files)),
            "search_files": WorkspaceTool(SearchFiles, self._search_files),
            "execute_command": WorkspaceTool(ExecuteCommand, self._execute_command),
        }

    def definitions(self) -> list[Tool]:
        """Return the tools as MCP lists them."""
        return [
            Tool(
                name=name,
                description=tool.arguments.description,
                input_schema=_schema(tool.arguments),
                annotations=tool.arguments.annotations,
            )
            for name, tool in self._tools.items()
        ]

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool; what goes wrong is the result, for the model."""
        tool = self._tools[name]
        try:
            content = await tool.call(tool.arguments.model_validate(arguments))
        except ValidationError as error:
            problems = map(placed_text, error.errors(include_url=False))
            return _result("; ".join(problems), is_error=True)
        except (ToolProblem, EditProblem) as error:
            return _result(str(error), is_error=True)
        except OSError as error:
            place = f"{printable(str(error.filename))}: " if error.filename is not None else ""
            return _result(f"{place}{error.strerror}.", is_error=True)
        return _result(content)

    def _relative(self, path: str) -> str:
        """Return a path below the folder; an absolute one is what ``pwd`` makes a model think."""
        if path == str(self.path):
            return ROOT
        return path.removeprefix(f"{self.path}/")

    def _read_file(self, arguments: ReadFile) -> Content:
        path = self._relative(arguments.path)
        content = self._folder.read(path, MOST_BYTES)
        kind = image_type(content)
        if kind is not None:
            if len(content) > MOST_IMAGE_BYTES:
                raise ToolProblem(f"The image is too large: {size_text(len(content))}.")
            return ImageContent(data=base64.b64encode(content).decode(), mime_type=kind)
        if is_binary(content):
            raise ToolProblem(f"The file is not text: it has {size_text(len(content))}.")
        return excerpt(content, arguments.offset, arguments.limit)

    def _write_file(self, arguments: WriteFile) -> Content:
        content = arguments.content.encode()
        with self._changing:
            is_new = self._folder.write(self._relative(arguments.path), [content])
        done = "Created" if is_new else "Replaced"
        return f"{done} {printable(arguments.path)} ({size_text(len(content))})."

    def _edit_file(self, arguments: EditFile) -> Content:
        path = self._relative(arguments.path)
        with self._changing:
            content, done = replace_text(
                self._folder.read(path, MOST_BYTES),
                arguments.old_text,
                arguments.new_text,
                everywhere=arguments.replace_all,
            )
            if len(content) > MOST_BYTES:
                raise ToolProblem(f"The file would be too long: {size_text(len(content))}.")
            self._folder.write(path, [content])
        return done

    def _list_files(self, arguments: ListFiles) -> Content:
        path = self._relative(arguments.path)
        pattern = arguments.pattern
        recursive = arguments.recursive or pattern is not None
        start = "" if path in {"", ROOT} else f"{path.strip('/')}/"
        with closing(
            self._folder.entries(path, recursive=recursive, skipped=search.SKIPPED)
        ) as entries:
            wanted = (
                entry
                for entry in entries
                if pattern is None
                or (entry.kind != "folder" and matches(entry.path.removeprefix(start), pattern))
            )
            listed = [_line(entry) for entry in islice(wanted, MOST_ENTRIES + 1)]
        if len(listed) > MOST_ENTRIES:
            listed[-1] = f"[There are more than {MOST_ENTRIES:,}: the others are not shown.]"
        return "\n".join(listed) or ("[No files.]" if pattern is None else "[No file matches.]")

    async def _search_files(self, arguments: SearchFiles) -> Content:
        path = self._relative(arguments.path)
        query = {**arguments.model_dump(), "path": path, "seconds": search.SECONDS}
        result = await self._runner.run(
            # Not in the folder: Python would import what lies there.
            [sys.executable, "-m", search.__name__, str(self.path), json.dumps(query)],
            folder=Path("/"),
            seconds=2 * search.SECONDS,
            most_bytes=2 * MOST_OUTPUT,
        )
        if result.exit_code in {None, -signal.SIGALRM}:
            note = f"[Stopped after {search.SECONDS} seconds: not all was searched.]"
            return f"{result.stdout}{note}"
        if result.exit_code:
            raise ToolProblem(result.stderr.strip() or "The search failed.")
        return result.stdout.rstrip("\n")

    async def _execute_command(self, arguments: ExecuteCommand) -> Content:
        shell = "bash" if shutil.which("bash") is not None else "sh"
        result = await self._runner.run(
            [sys.executable, "-I", "-S", isolated.__file__, shell, "-c", arguments.command],
            folder=self.path,
            seconds=COMMAND_SECONDS,
            most_bytes=MOST_OUTPUT,
        )
        text = _command_text(result)
        if result.exit_code is None:
            raise ToolProblem(f"Stopped after {COMMAND_SECONDS} seconds.\n{text}".rstrip())
        return text


async def _in_thread(function: Callable[[A], Content], arguments: A) -> Content:
    return await anyio.to_thread.run_sync(function, arguments)


def _result(content: Content, *, is_error: bool = False) -> CallToolResult:
    block = TextContent(text=content) if isinstance(content, str) else content
    return CallToolResult(content=[block], is_error=is_error)


def _line(entry: FileEntry) -> str:
    path = printable(entry.path)
    match entry.kind:
        case "folder":
            return f"{path}/"
        case "file":
            return f"{path} ({size_text(entry.size)})"
        case "link":
            return f"{path} (link)"
    return f"{path} (no file)"


def _command_text(result: CommandResult) -> str:
    parts: list[str] = []
    if result.exit_code is not None:
        parts.append(f"Exit code: {result.exit_code}")
        if result.exit_code < 0:
            parts[0] = f"Ended by {signal.Signals(-result.exit_code).name}"
    for name, text in (("Output", result.stdout), ("Errors", result.stderr)):
        if text:
            parts.append(f"{name}:\n{text.rstrip()}")
    if len(parts) == 1 and result.exit_code is not None:
        parts.append("No output.")
    return "\n".join(parts)


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    for part in (schema, *schema["properties"].values()):
        part.pop("title", None)
    schema.pop("description", None)  # of the class, not of the tool
    return schema
