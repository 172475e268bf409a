"""The MCP servers that a user has configured, in the file shape of other programs.

``{"mcpServers": {name: …}}`` of Claude Desktop and Cursor, and
``{"servers": {name: …}, "inputs": […]}`` of VS Code, both with comments; what is for us alone
stands under ``"mochi"``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from ....core.aio import in_thread, in_thread_to_completion
from ....core.files import locked_file, read_plain, replace_file, text_of
from ....core.parsed_file import FileVersion, file_version, is_steady
from ....errors import (
    JSONObject,
    McpConfigUnavailable,
    McpServerExists,
    McpServerInvalid,
    McpServerNotFound,
)
from ...base import Problem
from ..redaction import restored_secrets
from .entry import MAX_NAME, McpServerConfig, allowed_program, read_entry, reason_of
from .jsonc import CommentedJson, Member

OTHER_FILE_NAME = "mcp-config.json"
"""Read where there is no ``mcp.json``."""

MAX_BYTES = 1_000_000
MAX_SERVERS = 200
RESERVED_NAMES = frozenset({"add", "events", "health", "oauth", "servers"})
"""Names that no server may have, as ``/mcp/servers`` is another route."""
_SECTIONS = ("mcpServers", "servers")


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The servers of a file, as far as it can be understood."""

    servers: Mapping[str, McpServerConfig] = field(default_factory=dict)
    """By name, in the order of the file."""
    problems: Sequence[Problem] = ()
    broken: frozenset[str] = frozenset()
    """Names of the servers whose entries are among the problems."""
    is_unreadable: bool = False
    """Whether nothing of the file could be understood, such as half of what somebody writes."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The file that counts, and what identifies its content."""

    path: Path
    problems: tuple[Problem, ...] = ()
    version: FileVersion | None = None


class McpConfigFile:
    """The file of servers, which people and other programs edit and several processes share.

    Args:
        path: ``mcp.json``; where there is no such file, ``mcp-config.json`` beside it is used.
        allowed_commands: Names or full paths of programs that may be added; none: all.
    """

    def __init__(self, path: Path, *, allowed_commands: Sequence[str] = ()) -> None:
        self.path = path
        self.allowed_commands = tuple(allowed_commands)
        self._other_path = path.with_name(OTHER_FILE_NAME)
        self._lock = asyncio.Lock()
        """Held also while a thread waits for the lock of the file: the others are needed within."""
        self._known: tuple[_Source, McpConfig] | None = None

    async def read(self) -> McpConfig:
        """Return the servers as they are now; a file that is not there has none."""
        return await in_thread(self._read)

    def secret_files(self) -> list[Path]:
        """Return the files of servers, and those of variables that servers name; it blocks."""
        named = [config.variables_file for config in self._read().servers.values()]
        return [self.path, self._other_path, *filter(None, named)]

    async def add(self, name: str, entry: JSONObject) -> McpServerConfig:
        """Add a server.

        A name has at most 40 letters, digits, ``_`` and ``-``; the entry is as in the file.

        Raises:
            McpServerExists: There is one of this name.
            McpServerInvalid: The name or the entry is no valid one, or its command not allowed.
            McpConfigUnavailable: The file cannot be understood or written.
        """
        try:
            is_plain = _checked_name(name) == name
        except ValueError as error:
            raise McpServerInvalid(server=name[:MAX_NAME], reason=str(error)) from error
        if not is_plain:
            text = "a name has letters, digits, '-', and single '_' between them"
            raise McpServerInvalid(server=name[:MAX_NAME], reason=text)

        def added(old: JSONObject | None) -> JSONObject:
            if old is not None:
                raise McpServerExists(server=name)
            return entry

        async with self._lock:
            return await in_thread_to_completion(self._change, name, added)

    async def change(self, name: str, changes: JSONObject) -> McpServerConfig:
        """Change a server by a JSON merge patch: what is null is removed.

        A value that stands there as ``shown`` has it, without its secret, remains as it is.

        Raises:
            McpServerNotFound: There is none of this name.
            McpServerInvalid, McpConfigUnavailable: See ``add``.
        """

        def changed(old: JSONObject | None) -> JSONObject:
            if old is None:
                raise McpServerNotFound(server=name)
            try:
                entry = _merged(old, restored_secrets(changes, old))
            except ValueError as error:
                raise McpServerInvalid(server=name, reason=str(error)) from error
            return entry if isinstance(entry, dict) else {}

        async with self._lock:
            return await in_thread_to_completion(self._change, name, changed)

    async def remove(self, name: str) -> None:
        """Remove a server, also one whose entry is invalid.

        Raises:
            McpServerNotFound: There is none of this name.
            McpConfigUnavailable: See ``add``.
        """
        async with self._lock:
            await in_thread_to_completion(self._remove, name)

    def _remove(self, name: str) -> None:
        with self._writing() as (source, document):
            entries = [each for each in _entries(document) if _name_of(each[1].key) == name]
            if not entries:
                raise McpServerNotFound(server=name)
            text = document.text
            for section, member in entries:
                text = CommentedJson(text).without_member(section, member.key)
            _write(source.path, text)

    def _change(
        self, name: str, change: Callable[[JSONObject | None], JSONObject]
    ) -> McpServerConfig:
        with self._writing() as (source, document):
            entries = [each for each in _entries(document) if _name_of(each[1].key) == name]
            if len(entries) > 1:
                text = f"it stands several times in {source.path.name}"
                raise McpServerInvalid(server=name, reason=text)
            section, key, old = _SECTIONS[0], name, None
            if entries:
                section, member = entries[0]
                key, old = member.key, member.value if isinstance(member.value, dict) else {}
            elif document.value.get(_SECTIONS[0]) is None and _SECTIONS[1] in document.value:
                section = _SECTIONS[1]
            entry = change(old)
            config = self._checked(name, entry, document, source.path.parent)
            text = document.with_member(section, key, entry)
            if len(list(_entries(CommentedJson(text)))) > MAX_SERVERS:
                text = f"there are {MAX_SERVERS} servers already"
                raise McpServerInvalid(server=name, reason=text)
            _write(source.path, text)
            return config

    def _checked(
        self, name: str, entry: JSONObject, document: CommentedJson, folder: Path
    ) -> McpServerConfig:
        try:
            config = read_entry(name, entry, folder, _inputs(document))
            if config.command is not None and self.allowed_commands:
                allowed_program(config.command, folder, self.allowed_commands)
        except ValueError as error:
            raise McpServerInvalid(server=name, reason=str(error)) from error
        return config

    @contextmanager
    def _writing(self) -> Iterator[tuple[_Source, CommentedJson]]:
        """Hold the lock of the file, and give its present content."""
        try:
            with locked_file(self.path):
                source = self._source()
                text = _text_of(source.path) if source.version is not None else "{}\n"
                document = CommentedJson(text)
                if problem := _section_problem(document):
                    raise McpConfigUnavailable(reason=f"{source.path.name}: {problem}")
                yield source, document
        except (OSError, ValueError, RecursionError) as error:
            text = f"{self.path.name}: {reason_of(error)}"
            raise McpConfigUnavailable(reason=text) from error

    def _read(self) -> McpConfig:
        try:
            source = self._source()
        except OSError as error:
            return _unreadable(self.path, reason_of(error))
        if source.version is None:
            return McpConfig()
        if self._known is not None and self._known[0] == source:
            return self._known[1]
        may_keep = is_steady(source.version[-1])  # before it is read, as in ``ParsedFile``
        try:
            document = CommentedJson(_text_of(source.path))
            json.dumps(document.value, ensure_ascii=False).encode()  # half a surrogate pair
        except OSError as error:  # it may pass without a change of the file
            return _unreadable(source.path, reason_of(error))
        except (ValueError, RecursionError) as error:
            config = _unreadable(source.path, reason_of(error))
        else:
            config = _read_document(document, source)
        # One assignment: several threads may be here.
        self._known = (source, config) if may_keep else None
        return config

    def _source(self) -> _Source:
        paths = dict.fromkeys((self.path, self._other_path))
        versions = [(path, file_version(path)) for path in paths]
        present = [(path, version) for path, version in versions if version is not None]
        if not present:
            return _Source(self.path)
        (path, version), *ignored = present
        reason = f"Not read, as there is {self.path.name}."
        problems = [Problem(file=str(path), line=None, reason=reason) for path, _ in ignored]
        return _Source(path, tuple(problems), version)


def _text_of(path: Path) -> str:
    data, status = read_plain(path, MAX_BYTES + 1)
    if status.st_size > MAX_BYTES or len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return text_of(data)


def _write(path: Path, text: str) -> None:
    content = text.encode()
    if len(content) > MAX_BYTES:
        raise ValueError(f"it would have more than {MAX_BYTES:,} bytes")
    replace_file(path, [content], private=True)


def _unreadable(path: Path, reason: str) -> McpConfig:
    problem = Problem(file=str(path), line=None, reason=f"Cannot be read: {reason}")
    return McpConfig(problems=(problem,), is_unreadable=True)


def _read_document(document: CommentedJson, source: _Source) -> McpConfig:
    if problem := _section_problem(document):
        return _unreadable(source.path, problem)
    inputs = _inputs(document)
    servers: dict[str, McpServerConfig] = {}
    broken: dict[str, Problem] = {}
    entries = list(_entries(document))
    for _, member in entries[:MAX_SERVERS]:
        name = _name_of(member.key)
        try:
            _checked_name(member.key)
            server = read_entry(name, member.value, source.path.parent, inputs)
            if name in servers or name in broken:
                raise ValueError("two servers have this name")  # noqa: TRY301
            servers[name] = server
        except ValueError as error:
            servers.pop(name, None)
            reason = f"The server {member.key[:MAX_NAME]!r} cannot be used: {error}."
            line = document.line_of(member)
            broken[name] = Problem(file=str(source.path), line=line, reason=reason)
    problems = [*source.problems, *broken.values()]
    if len(entries) > MAX_SERVERS:
        text = f"Only the first {MAX_SERVERS} of {len(entries)} servers are used."
        problems.append(Problem(file=str(source.path), line=None, reason=text))
    return McpConfig(servers, tuple(problems), frozenset(broken))


def _entries(document: CommentedJson) -> Iterator[tuple[str, Member]]:
    """Yield the servers, each with the section of the file that it stands in."""
    for section in _SECTIONS:
        for member in document.members(section):
            yield section, member


def _section_problem(document: CommentedJson) -> str | None:
    for section in _SECTIONS:
        if not isinstance(document.value.get(section, {}), dict):
            return f"{section!r} is no object"
    return None


def _inputs(document: CommentedJson) -> dict[str, str | None]:
    """Return the default of each input by its id; what is none is left out."""
    listed = document.value.get("inputs")
    inputs: dict[str, str | None] = {}
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(name := each.get("id"), str):
            default = each.get("default")
            inputs[name] = default if isinstance(default, str) else None
    return inputs


def _name_of(key: str) -> str:
    """Return the name under which a server of the file is known here."""
    return re.sub("[^A-Za-z0-9-]+", "_", key).strip("_")


def _checked_name(key: str) -> str:
    name = _name_of(key)
    if not name or len(name) > MAX_NAME:
        raise ValueError(f"a name has 1 to {MAX_NAME} letters, digits, '_' and '-'")
    if name in RESERVED_NAMES:
        raise ValueError(f"the name {name!r} is reserved")
    return name


def _merged(old: JsonValue, changes: JsonValue) -> JsonValue:
    """Return the result of a JSON merge patch (RFC 7396)."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
