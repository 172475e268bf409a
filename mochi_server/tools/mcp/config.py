"""The MCP servers that a user has configured, in the file shape of other programs.

``{"mcpServers": {name: …}}`` of Claude Desktop and Cursor, and
``{"servers": {name: …}, "inputs": […]}`` of VS Code, both with comments; what is for us alone
stands under ``"mochi"``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from ...config import environment_variables, tool_environment, variables_of_file
from ...core.aio import in_thread, in_thread_to_completion
from ...core.files import is_steady, locked, make_folder, read_plain, replace_file
from ...errors import (
    JSONObject,
    McpConfigUnavailable,
    McpServerExists,
    McpServerInvalid,
    McpServerNotFound,
)
from ..base import Problem
from .descriptions import offered_part
from .jsonc import CommentedJson, Member
from .redaction import SecretValues, redacted_server, restored_secrets, secrets_of

FILE_NAME = "mcp.json"
OTHER_FILE_NAME = "mcp-config.json"
"""Read where there is no ``mcp.json``."""

MAX_BYTES = 1_000_000
MAX_SERVERS = 200
MAX_NAME = 40
"""Characters; vendors allow 64 for a tool, whose name begins with that of its server."""
MAX_ITEMS, MAX_CHARACTERS = 500, 32_768
"""Arguments, variables or headers of one server, and characters of each."""
MAX_SECONDS = 86_400

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RESERVED = frozenset({"add", "events", "health", "oauth", "servers"})
"""Names that no server may have, as ``/mcp/servers`` is another route."""
_SECTIONS = ("mcpServers", "servers")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLACEHOLDER = re.compile(
    r"\$\{(?P<kind>env:|input:)?(?P<name>[A-Za-z0-9_][A-Za-z0-9_ .-]*?)(?::-(?P<default>[^}]*))?\}"
)

Transport = Literal["stdio", "http", "sse"]
_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


UNCONFINED = "process"
"""The sandbox that only limits."""
CONFINES_NOTHING = (
    "The sandbox 'process' of the MCP server {name!r} confines nothing: it can do what you can."
)


class McpServerUnusable(ValueError):
    """A server cannot be started as it is configured; the text says why, without any secret."""


def _transport(value: object) -> object:
    return _TRANSPORTS.get(value, value) if isinstance(value, str) else value


def _variables(value: object) -> object:
    """Make texts of numbers, and leave out what is null, as VS Code does."""
    if not isinstance(value, dict):
        return value
    return {
        name: str(each) if type(each) in (int, float) else each
        for name, each in value.items()
        if each is not None
    }


_Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
_Texts = Annotated[list[_Text], Field(max_length=MAX_ITEMS)]
_TextsByName = Annotated[dict[_Text, _Text], Field(max_length=MAX_ITEMS)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, populate_by_name=True)


class McpToolPatterns(_Model):
    """Which tools of a server are offered, by patterns such as ``read_*``."""

    model_config = ConfigDict(extra="forbid")

    allow: _Texts = ["*"]
    deny: _Texts = []

    def allows(self, tool: str) -> bool:
        """Tell whether a tool of the server's own name is offered; ``deny`` wins.

        Patterns fit that name, or the one that models see.
        """
        names = {tool, offered_part(tool)}
        return any(_fits(name, self.allow) for name in names) and not any(
            _fits(name, self.deny) for name in names
        )


class McpOptions(_Model):
    """What a server's entry says to us alone, under ``"mochi"``."""

    model_config = ConfigDict(extra="forbid")

    trusted: bool = False
    """Whether its annotations count, and it may use models."""
    timeout_seconds: float | None = Field(
        default=None, gt=0, le=MAX_SECONDS, allow_inf_nan=False, description="Of one call."
    )
    scope: Literal["shared", "session"] = "shared"
    sandbox: str | None = Field(default=None, min_length=1, max_length=MAX_NAME)
    tools: McpToolPatterns = McpToolPatterns()
    prefix: str | None = None
    """What the names of its tools begin with, in place of its own name."""
    start: Literal["eager", "lazy"] = "lazy"

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str | None) -> str | None:
        is_name = value is None or (_PREFIX.fullmatch(value) and len(value) <= MAX_NAME)
        if not is_name or (value is not None and ("__" in value or value.endswith("_"))):
            raise ValueError(
                f"a prefix has at most {MAX_NAME} letters, digits, '_' and '-', no digit first,"
                " no two '_' in a row, and no '_' at its end"
            )
        return value


class McpServerConfig(_Model):
    """One server: a command to start, or an address."""

    name: str
    """Letters, digits, ``_`` and ``-``: the name in the file with others replaced by ``_``."""
    type: Annotated[Transport | None, BeforeValidator(_transport)] = Field(
        default=None, validation_alias=AliasChoices("type", "transport")
    )
    """The transport that the file names; None: none, so an address may be of either kind."""
    command: _Text | None = None
    args: _Texts = Field(default=[], repr=False)
    env: Annotated[_TextsByName, BeforeValidator(_variables)] = Field(default={}, repr=False)
    env_file: Path | None = Field(default=None, validation_alias=AliasChoices("envFile"))
    cwd: Path | None = None
    url: _Text | None = Field(default=None, repr=False)
    headers: _TextsByName = Field(default={}, repr=False)
    disabled: bool = False
    options: McpOptions = Field(default=McpOptions(), validation_alias=AliasChoices("mochi"))
    folder: Path = Path()
    """Where relative paths begin: the folder of the file."""
    inputs: Mapping[str, str | None] = Field(default={}, repr=False)
    """Default of each of the file's ``inputs``, by its id."""
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)
    """Once it is expanded: what nobody is to see of it."""

    @model_validator(mode="after")
    def _check(self) -> McpServerConfig:
        wanted, other = ("command", "url") if self.transport == "stdio" else ("url", "command")
        if not getattr(self, wanted):
            raise ValueError(f"a server of the type {self.transport!r} needs {wanted!r}")
        if getattr(self, other) is not None:
            raise ValueError(f"it has a 'command' and a 'url': remove {other!r}, or correct 'type'")
        _check_texts(self)
        return self

    @property
    def transport(self) -> Transport:
        if self.type is not None:
            return self.type
        return "stdio" if self.url is None else "http"

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with, before ``__``."""
        if self.options.prefix is not None:
            return self.options.prefix
        return self.name if _PREFIX.fullmatch(self.name) else f"_{self.name}"

    def shown(self) -> JSONObject:
        """Return the entry without its secrets, in the shape of the file."""
        fields: JSONObject = self.model_dump(
            mode="json", exclude={"name", "folder", "inputs", "secrets"}, exclude_defaults=True
        )
        for name, key in (("env_file", "envFile"), ("options", "mochi")):
            if name in fields:
                fields[key] = fields.pop(name)
        return redacted_server(fields)

    def expanded(self, allowed_commands: Sequence[str] = ()) -> McpServerConfig:
        """Return what to start: variables in the place of ``${NAME}``, and paths absolute.

        Blocks. If only some commands are allowed, the command becomes the full path of its program,
        as a ``PATH`` among the server's variables would decide otherwise.

        Args:
            allowed_commands: Names or full paths of programs; none: all are allowed.

        Raises:
            McpServerUnusable: A variable or an input has no value, or the command is not allowed.
        """
        values = _Values(self)
        env = {} if self.env_file is None else values.of_file(self.env_file)
        env.update((name, values.fill(text)) for name, text in self.env.items())
        cwd = None if self.cwd is None else self.folder / values.path(self.cwd)
        command = None if self.command is None else values.fill(self.command)
        if command is not None and allowed_commands:
            try:
                command = _allowed_program(command, cwd or self.folder, allowed_commands)
            except McpServerUnusable as error:
                raise McpServerUnusable(values.secrets.redacted(str(error))) from None
        changes = {
            "command": command,
            "args": [values.fill(text) for text in self.args],
            "env": env,
            "env_file": None,
            "cwd": cwd,
            "url": None if self.url is None else values.fill(self.url),
            "headers": {name: values.fill(text) for name, text in self.headers.items()},
        }
        if values.missing:
            text = f"needs {' and '.join(values.missing)}"
            raise McpServerUnusable(values.secrets.redacted(text))
        config = self.model_copy(update=changes)
        entry = config.model_dump(include={"command", "args", "env", "url", "headers"})
        config = config.model_copy(update={"secrets": frozenset(values.used | secrets_of(entry))})
        try:
            _check_texts(config)
        except ValueError as error:
            raise McpServerUnusable(str(error)) from error
        return config


class _Values:
    """What stands in the place of ``${…}``."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._variables = environment_variables()
        self._harmless = tool_environment().keys()
        self.used: set[str] = set()
        """Values of variables, but for those that every program gets."""
        self.missing: dict[str, None] = {}
        """What has no value, as parts of a sentence."""

    def fill(self, text: str) -> str:
        return _PLACEHOLDER.sub(self._value, text)

    @property
    def secrets(self) -> SecretValues:
        secrets = SecretValues()
        secrets.add(self.used)
        return secrets

    def path(self, path: Path) -> Path:
        return Path(self.fill(str(path))).expanduser()

    def of_file(self, path: Path) -> dict[str, str]:
        """Return the variables of a file as ``envFile`` names it."""
        path = self._config.folder / self.path(path)
        try:
            variables = variables_of_file(path)
        except (OSError, ValueError) as error:
            self.missing[f"the file {str(path)!r}, which cannot be read ({_reason(error)})"] = None
            return {}
        self.used.update(variables.values())
        return variables

    def _value(self, match: re.Match[str]) -> str:
        kind, name, default = match["kind"], match["name"], match["default"]
        if kind == "input:":
            variable = f"MCP_INPUT_{re.sub('[^A-Z0-9]+', '_', name.upper())}"
            value = self._variables.get(variable) or self._config.inputs.get(name)
            is_secret = True
            missing = f"the input {name!r}: set the variable {variable}"
        else:
            known = {"userHome": str(Path.home()), "workspaceFolder": str(self._config.folder)}
            value = self._variables.get(name, None if kind else known.get(name))
            is_secret = name in self._variables and name not in self._harmless
            missing = f"the variable {name}, which is not set"
        if not value and default is not None:
            return default
        if value is None:
            self.missing[missing] = None
            return ""
        if is_secret:
            self.used.add(value)
        return value


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
    stamp: tuple[int, ...] | None = None


class McpConfigFile:
    """The file of servers, which people and other programs edit and several processes share.

    Args:
        path: ``mcp.json``; where there is no such file, ``mcp-config.json`` beside it is used.
        allowed_commands: Names or full paths of programs that may be added; none: all.
    """

    def __init__(self, path: Path, *, allowed_commands: Sequence[str] = ()) -> None:
        self.path = path
        self.allowed_commands = tuple(allowed_commands)
        self._lock = asyncio.Lock()
        """Held also while a thread waits for the lock of the file: the others are needed within."""
        self._known: tuple[_Source, McpConfig] | None = None

    async def read(self) -> McpConfig:
        """Return the servers as they are now; a file that is not there has none."""
        return await in_thread(self._read)

    async def add(self, name: str, entry: JSONObject) -> McpServerConfig:
        """Add a server.

        Args:
            name: At most 40 letters, digits, ``_`` and ``-``.
            entry: As in the file.

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
            config = _read_entry(name, entry, folder, _inputs(document))
            if config.command is not None and self.allowed_commands:
                _allowed_program(config.command, folder, self.allowed_commands)
        except ValueError as error:
            raise McpServerInvalid(server=name, reason=str(error)) from error
        return config

    @contextmanager
    def _writing(self) -> Iterator[tuple[_Source, CommentedJson]]:
        """Hold the lock of the file, and give its present content."""
        try:
            make_folder(self.path.parent, private=True)
            with locked(self.path.with_name(f".{self.path.name}.lock")):
                source = self._source()
                text = _text_of(source.path) if source.stamp is not None else "{}\n"
                document = CommentedJson(text)
                if problem := _section_problem(document):
                    raise McpConfigUnavailable(reason=f"{source.path.name}: {problem}")
                yield source, document
        except (OSError, ValueError, RecursionError) as error:
            text = f"{self.path.name}: {_reason(error)}"
            raise McpConfigUnavailable(reason=text) from error

    def _read(self) -> McpConfig:
        try:
            source = self._source()
        except OSError as error:
            return _unreadable(self.path, _reason(error))
        if source.stamp is None:
            return McpConfig()
        if self._known is not None and self._known[0] == source:
            return self._known[1]
        try:
            document = CommentedJson(_text_of(source.path))
            json.dumps(document.value, ensure_ascii=False).encode()  # half a surrogate pair
        except (OSError, ValueError, RecursionError) as error:
            config = _unreadable(source.path, _reason(error))
        else:
            config = _read_document(document, source)
        # One assignment: several threads may be here.
        self._known = (source, config) if is_steady(source.stamp[-1]) else None
        return config

    def _source(self) -> _Source:
        other = self.path.with_name(OTHER_FILE_NAME)
        stamps = [(path, _stamp(path)) for path in dict.fromkeys((self.path, other))]
        present = [(path, stamp) for path, stamp in stamps if stamp is not None]
        if not present:
            return _Source(self.path)
        (path, stamp), *ignored = present
        reason = f"Not read, as there is {self.path.name}."
        problems = [Problem(file=str(path), line=None, reason=reason) for path, _ in ignored]
        return _Source(path, tuple(problems), stamp)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _text_of(path: Path) -> str:
    data, status = read_plain(path, MAX_BYTES + 1)
    if status.st_size > MAX_BYTES or len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return data.decode("utf-8-sig")


def _write(path: Path, text: str) -> None:
    content = text.encode()
    if len(content) > MAX_BYTES:
        raise ValueError(f"it would have more than {MAX_BYTES:,} bytes")
    replace_file(path, [content], private=True)


def _unreadable(path: Path, reason: str) -> McpConfig:
    problem = Problem(file=str(path), line=None, reason=f"Cannot be read: {reason}")
    return McpConfig(problems=(problem,), is_unreadable=True)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)


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
            server = _read_entry(name, member.value, source.path.parent, inputs)
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
    if name in _RESERVED:
        raise ValueError(f"the name {name!r} is reserved")
    return name


def _read_entry(
    name: str, entry: JsonValue, folder: Path, inputs: Mapping[str, str | None]
) -> McpServerConfig:
    """Read the entry of a server.

    Raises:
        ValueError: It is none; the text shows nothing of its values.
    """
    if not isinstance(entry, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - see above
    known = {key: value for key, value in entry.items() if key not in _OWN_FIELDS}
    try:
        return McpServerConfig.model_validate(
            {**known, "name": name, "folder": folder, "inputs": inputs}
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part)[:MAX_NAME] for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {text}" if place else text) from error


_OWN_FIELDS = frozenset({"name", "folder", "inputs", "secrets", "options", "env_file"})
"""Fields that are not read from an entry by these names."""


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


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_texts(config: McpServerConfig) -> None:
    """Raise a ValueError for what no command, no variable and no request can hold."""
    texts = [config.command or "", *config.args, *config.env, *config.env.values()]
    if any("\0" in text for text in texts) or any("=" in name or not name for name in config.env):
        raise ValueError("a text or the name of a variable has characters that none can have")
    for name, value in config.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the header {name[:MAX_NAME]!a} has characters that none can have")
    if config.url is not None and not _PLACEHOLDER.search(config.url):
        try:
            parts = urlsplit(config.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
            is_address = is_address and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not config.url.isascii() or not config.url.isprintable():
            raise ValueError("'url' must be an address such as https://example.org/mcp")


def _allowed_program(command: str, folder: Path, allowed: Sequence[str]) -> str:
    """Return the full path of the program, which is one of those allowed.

    Names are looked for in this process's ``PATH``, and full paths compared: a program of the same
    name in another folder is another one.

    Raises:
        McpServerUnusable: It is not allowed, or not there.
    """
    path = _program(command, folder)
    if path is None or path not in {_program(each, folder) for each in allowed}:
        text = f"the command {command[:200]!a} is not one of MOCHI_MCP_ALLOWED_COMMANDS"
        raise McpServerUnusable(text if path else f"{text}, and there is no such program")
    return path


def _program(command: str, folder: Path) -> str | None:
    if "/" in command:
        command = os.path.normpath(folder.absolute() / Path(command).expanduser())
    found = shutil.which(command)
    return None if found is None else os.path.abspath(found)  # noqa: PTH100 - keeps links
