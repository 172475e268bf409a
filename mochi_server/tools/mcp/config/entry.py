"""The entry of an MCP server in the configuration: what it may say, and what to start then."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
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

from ....config import environment_variables, tool_environment, variables_of_file
from ....core.problems import place_of, problem_text
from ....errors import JSONObject
from ..descriptions import offered_part
from ..redaction import redacted_server, secrets_of
from ..secret_values import SecretValues

MAX_NAME = 40
"""Characters; vendors allow 64 for a tool, whose name begins with that of its server."""
MAX_ITEMS, MAX_CHARACTERS = 500, 32_768
"""Arguments, variables or headers of one server, and characters of each."""
MAX_SECONDS = 86_400

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
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

    @property
    def variables_file(self) -> Path | None:
        """The absolute path of what ``envFile`` names."""
        return None if self.env_file is None else self.folder / _Values(self).path(self.env_file)

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
        env = {} if self.variables_file is None else values.of_file(self.variables_file)
        env.update((name, values.fill(text)) for name, text in self.env.items())
        cwd = None if self.cwd is None else self.folder / values.path(self.cwd)
        changes = {
            "command": values.program(cwd or self.folder, allowed_commands),
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

    def program(self, folder: Path, allowed_commands: Sequence[str]) -> str | None:
        """Return the command; if only some are allowed, the full path of its program."""
        command = None if self._config.command is None else self.fill(self._config.command)
        if command is None or not allowed_commands:
            return command
        try:
            return allowed_program(command, folder, allowed_commands)
        except McpServerUnusable as error:
            raise McpServerUnusable(self.secrets.redacted(str(error))) from None

    @property
    def secrets(self) -> SecretValues:
        secrets = SecretValues()
        secrets.add(self.used)
        return secrets

    def path(self, path: Path) -> Path:
        return Path(self.fill(str(path))).expanduser()

    def of_file(self, path: Path) -> dict[str, str]:
        try:
            variables = variables_of_file(path)
        except (OSError, ValueError) as error:
            self.missing[f"the file {str(path)!r}, which cannot be read ({reason_of(error)})"] = (
                None
            )
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


def read_entry(
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
        place = place_of([str(step)[:MAX_NAME] for step in first["loc"]])
        text = problem_text(first)
        raise ValueError(f"{place}: {text}" if place else text) from error


_OWN_FIELDS = frozenset({"name", "folder", "inputs", "secrets", "options", "env_file"})
"""Fields that are not read from an entry by these names."""


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


def allowed_program(command: str, folder: Path, allowed: Sequence[str]) -> str:
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


def reason_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)
