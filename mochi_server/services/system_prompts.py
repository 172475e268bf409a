"""System prompts: ``.md`` and ``.txt`` files in one folder, and the prompts of MCP servers."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..constants import PREVIEW_CHARACTERS, SYSTEM_PROMPT_CHARACTERS
from ..core.aio import in_thread
from ..core.files import NOT_PLAIN, NotUTF8, check_plain, read_plain, replace_file, text_of
from ..errors import (
    InvalidRequest,
    PromptArgumentsInvalid,
    PromptExists,
    PromptInvalid,
    PromptNotFound,
    StorageError,
)
from ..tools.mcp.prompts import McpPrompts, is_mcp_prompt

FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,123}\.(?:md|txt)")
"""Names of prompt files; any other name never reaches the file system."""

MAX_FILE = 1_000_000
"""Bytes; of a larger file only the beginning is read, for the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSummary:
    """One prompt file in the list."""

    filename: str
    preview: str
    """The beginning in one line, at most 100 characters, then "..."."""
    word_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProblem:
    """A prompt file that cannot be used."""

    filename: str
    reason: str


@dataclass(frozen=True, slots=True)
class PromptListing:
    """The prompt files of the folder, by name."""

    prompts: list[PromptSummary] = field(default_factory=list)
    problems: list[PromptProblem] = field(default_factory=list)


class SystemPromptService:
    """Reads and writes the prompt files of one folder, which is made when the first is written.

    A file is replaced whole: whoever reads meanwhile sees the old or the new one.

    Raises:
        InvalidRequest: the name of a new file, or the text, is not allowed.
        PromptExists: there is a new file's name already; that file is left alone.
        PromptNotFound: there is no such file, or it could not be a prompt's name.
        PromptInvalid: it is not UTF-8 text, or larger than ``MAX_FILE``.
        StorageError: it cannot be read or written.
    """

    def __init__(self, folder: Path, of_servers: McpPrompts | None = None) -> None:
        self.folder = folder
        self._of_servers = of_servers

    async def read(self, filename: str) -> str:
        return await in_thread(read_prompt, self._path(filename))

    async def text_for_session(self, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """Return the text of a file or of a server's prompt, if it may be a session's prompt.

        Args:
            name: Of the file, or ``{prefix}__{prompt}`` of an MCP server.
            arguments: Those of the prompt of a server.

        Raises:
            PromptArgumentsInvalid: they are not the ones that the prompt takes; a file takes none.
            McpServerFailed: the server does not answer, or its answer is an error.
        """
        if self._of_servers is not None and is_mcp_prompt(name):
            prompt = await self._of_servers.get(name)
            content = await self._of_servers.text(prompt, arguments or {})
        else:
            content = await self.read(name)
            if arguments:
                raise PromptArgumentsInvalid(filename=name, reason="a file takes none")
        check_content(content, f"System prompt {name!r}")
        return content

    async def create(self, filename: str, content: str) -> None:
        if FILENAME.fullmatch(filename) is None:
            raise InvalidRequest(
                f"{filename!r} is not a name for a prompt file: letters, digits, '.', '_', '-' "
                "and spaces, a letter or digit first, .md or .txt last, at most 128 characters.",
                details={"field": "filename"},
            )
        check_content(content)
        await in_thread(self._write, self.folder / filename, content, new=True)

    async def update(self, filename: str, content: str) -> None:
        path = self._path(filename)
        check_content(content)
        await in_thread(self._write, path, content, new=False)

    async def delete(self, filename: str) -> None:
        await in_thread(self._delete, self._path(filename))

    def _path(self, filename: str) -> Path:
        if FILENAME.fullmatch(filename) is None:
            raise PromptNotFound(filename=filename)
        return self.folder / filename

    def _write(self, path: Path, content: str, *, new: bool) -> None:
        try:
            with _storage_errors(path.name):
                if not new:
                    check_plain(path)
                replace_file(path, [content.encode()], new=new)
        except FileExistsError as error:
            if not self.folder.is_dir():
                raise _storage_error(self.folder.name, error) from error
            raise PromptExists(filename=path.name) from error

    def _delete(self, path: Path) -> None:
        with _storage_errors(path.name):
            check_plain(path)
            path.unlink()

    def _list(self) -> PromptListing:
        try:
            with os.scandir(self.folder) as entries:
                names = [each.name for each in entries if each.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return PromptListing()
        except OSError as error:
            raise _storage_error(self.folder.name, error) from error
        listing = PromptListing()
        for name in sorted(filter(FILENAME.fullmatch, names)):
            with contextlib.suppress(PromptNotFound):  # removed since we looked
                try:
                    listing.prompts.append(_summary_of(self.folder / name))
                except NotUTF8 as error:
                    problem = PromptProblem(filename=name, reason=str(error))
                    listing.problems.append(problem)
        return listing

    async def list(self) -> PromptListing:
        return await in_thread(self._list)


def check_content(content: str, name: str = "A system prompt") -> None:
    """Raise InvalidRequest for an empty or too long prompt."""
    if not content.strip():
        raise InvalidRequest(f"{name} must not be empty.", details={"field": "content"})
    if len(content) >= SYSTEM_PROMPT_CHARACTERS:
        raise InvalidRequest(
            f"{name} must be shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters; "
            f"this one has {len(content):,}.",
            details={"field": "content", "characters": len(content)},
        )


def summarize(filename: str, content: str) -> PromptSummary:
    words = content.split()
    line = " ".join(words)
    cut = line[:PREVIEW_CHARACTERS] + ("..." if len(line) > PREVIEW_CHARACTERS else "")
    return PromptSummary(filename=filename, preview=cut, word_count=len(words))


def _summary_of(path: Path) -> PromptSummary:
    """Summarize what can be read of a file: the list has prompts that are too long, too.

    Raises:
        NotUTF8: It is not UTF-8 text.
    """
    try:
        content = _beginning(path)
    except StorageError:
        content = b""
    if len(content) > MAX_FILE:
        return summarize(path.name, content[:MAX_FILE].decode(errors="replace"))
    return summarize(path.name, text_of(content))


def read_prompt(path: Path) -> str:
    """Return the text of a prompt file; blocks."""
    content = _beginning(path)
    if len(content) > MAX_FILE:
        raise PromptInvalid(filename=path.name, reason=f"it has more than {MAX_FILE:,} bytes")
    try:
        return text_of(content)
    except NotUTF8 as error:
        raise PromptInvalid(filename=path.name, reason=str(error)) from error


def _beginning(path: Path) -> bytes:
    with _storage_errors(path.name):
        return read_plain(path, MAX_FILE + 1)[0]


@contextlib.contextmanager
def _storage_errors(filename: str) -> Iterator[None]:
    """Translate errors of the system, except that a file exists."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in NOT_PLAIN:
            raise PromptNotFound(filename=filename) from error
        raise _storage_error(filename, error) from error


def _storage_error(name: str, error: OSError) -> StorageError:
    text = f"System prompt {name!r} cannot be stored or read: {error.strerror or error}"
    return StorageError.because(error, text, filename=name)
