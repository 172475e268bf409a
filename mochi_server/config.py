"""Every setting of the server, in one place: the environment is read here and nowhere else.

Precedence: command line, environment, ``.env`` in the working directory, default.
docs/reference/settings.md is the table of all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from platformdirs import user_cache_path
from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "MOCHI_"

TEST_PORT = 5099
"""Where test mode listens unless a port is set."""

_PORT = re.compile(r"(.*@)?(\[[^]]*\]|[^:]*)(:\d{1,5})?")
"""Where a network location has a port or none; the standard library's error shows what else it
has there, which may be a password with a slash in it."""

_DURATION = re.compile(r"-?([0-9]+|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)")
"""Whole seconds, or a duration as Go writes it."""

_SECRET = re.compile(
    r"((^|_)(KEY|TOKEN)|SECRET|PASSWORD|PASSWD|^MOCHI_REDIS_URL|^MOCHI_OLLAMA_HOST)(_FILE)?$",
    re.IGNORECASE,
)
_WITH_LOGIN = re.compile(r"://[^/]*@")

CommaList = Annotated[list[str], NoDecode]


class SettingsError(Exception):
    """A setting has a value that is not allowed; the text is one line for each."""


def _bare(name: str) -> AliasChoices:
    """Read ``MOCHI_NAME`` and, as other programs write it, ``NAME``."""
    return AliasChoices(f"{PREFIX}{name}", name)


class MochiServerSettings(BaseSettings):
    """The settings; each field is the variable ``MOCHI_`` + its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        validate_default=True,
        hide_input_in_errors=True,
    )

    # Server
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks one.")
    workers: int = Field(default=1, ge=1, le=64, description="Server processes.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="INFO", description="How much is logged."
    )
    environment: Literal["production", "test"] = Field(
        default="production", description="Mode of the server; test answers without any model."
    )
    shutdown_seconds: float = Field(
        default=10, ge=0, description="Longest wait for running turns when the server stops."
    )

    # Ollama
    ollama_host: str = Field(
        default="http://localhost:11434", min_length=1, description="Address of Ollama."
    )
    ollama_connect_timeout_seconds: float = Field(
        default=5, gt=0, description="Longest wait for a connection to Ollama."
    )
    ollama_first_byte_timeout_seconds: float = Field(
        default=600,
        gt=0,
        description="Longest wait for a reply's first byte: queue, model load, prompt.",
    )
    ollama_idle_timeout_seconds: float = Field(
        default=300, gt=0, description="Longest silence within a reply (tool calls are silent)."
    )
    ollama_keep_alive: str | None = Field(
        default=None,
        description="How long Ollama keeps a model loaded (5m, 1h, -1m); unset: as Ollama likes.",
    )

    # Data
    data_dir: Path = Field(default=Path(), description="Folder of all data.")
    sessions_dir: Path = Field(default=Path("chat_sessions"), description="Sessions.")
    tools_dir: Path = Field(default=Path("tools"), description="Tools.")
    agents_dir: Path = Field(default=Path("agents"), description="Agents.")
    agent_chats_dir: Path = Field(
        default=Path("agents/agent_chats"), description="Sessions of agents."
    )
    system_prompts_dir: Path = Field(default=Path("system_prompts"), description="Prompt files.")
    planning_prompt_path: Path = Field(
        default=Path("docs/agents/agent_prompt_planning.md"),
        description="Prompt of an agent's planning.",
    )
    execution_prompt_path: Path = Field(
        default=Path("docs/agents/agent_prompt_execution.md"),
        description="Prompt of an agent's execution.",
    )
    session_storage: Literal["json", "memory"] = Field(
        default="json", description="Where sessions are kept."
    )
    max_import_mb: float = Field(
        default=100, gt=0, description="Largest file that is imported (10**6 bytes)."
    )

    # Security
    api_token: SecretStr | None = Field(
        default=None, description="Bearer token that every route but health asks for."
    )
    cors_origins: CommaList = Field(
        default=[], description="Origins of web pages that may use the server, comma-separated."
    )
    allowed_hosts: CommaList = Field(
        default=[],
        description="Host names to answer for, comma-separated, beside loopback and the address.",
    )
    max_body_mb: float = Field(default=10, gt=0, description="Largest request body (10**6 bytes).")

    # Turns
    heartbeat_seconds: float = Field(
        default=15, gt=0, description="Pause after which a stream carries a comment."
    )
    client_stall_seconds: float = Field(
        default=60, gt=0, description="Longest time that a client may not read its stream."
    )
    max_tool_rounds: int = Field(default=25, ge=1, description="Tool rounds in one turn.")
    max_history_tokens: int | None = Field(
        default=None,
        ge=256,
        validation_alias=_bare("MAX_HISTORY_TOKENS"),
        description="Most tokens of history to send; unset: what the window holds.",
    )
    max_history_messages: int | None = Field(
        default=None, ge=1, description="Most messages of history to send."
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        validation_alias=_bare("MAX_OUTPUT_TOKENS"),
        description="Most tokens of one reply; unset: what the window leaves.",
    )
    dynamic_context_window_enabled: bool = Field(
        default=True, description="Size the context window by need."
    )

    # Tools
    tool_timeout_seconds: float = Field(default=60, gt=0, description="Longest run of a tool.")
    tool_confirmation_timeout_seconds: float = Field(
        default=300, gt=0, description="Longest wait for a person's decision."
    )
    tool_isolation: Literal["process", "thread"] = Field(
        default="process", description="Where tools run: processes of their own, or threads."
    )
    tool_workers: int = Field(
        default=8, ge=1, le=256, description="Most processes for the calls of one tool folder."
    )
    tool_memory_mb: float = Field(
        default=1024, gt=0, description="Most memory of such a process (10**6 bytes)."
    )
    tool_result_characters: int = Field(
        default=100_000, ge=100, description="Longest result of a tool; the rest is cut."
    )
    max_agent_rounds: int = Field(default=25, ge=1, description="Execution steps of an agent.")

    # Summaries
    summarization_enabled: bool = Field(default=True, description="Summarise in the background.")
    summarization_interval_seconds: float = Field(
        default=3, ge=0, description="Quiet time before a summary."
    )

    # The built-in model
    models_dir: Path | None = Field(
        default=None, description="Folder of GGUF files; unset: the user's cache folder."
    )
    local_idle_seconds: float = Field(
        default=300, gt=0, description="Idle time after which the built-in model is unloaded."
    )
    local_threads: int | None = Field(
        default=None, ge=1, description="Threads of the built-in model; unset: every core."
    )

    # Other providers
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias=_bare("OPENAI_API_KEY"), description="Key of OpenAI."
    )
    openai_base_url: str | None = Field(
        default=None,
        validation_alias=_bare("OPENAI_BASE_URL"),
        description="Address of any OpenAI-compatible server.",
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, validation_alias=_bare("ANTHROPIC_API_KEY"), description="Key of Anthropic."
    )
    anthropic_base_url: str | None = Field(
        default=None, validation_alias=_bare("ANTHROPIC_BASE_URL"), description="Its address."
    )
    gemini_api_key: SecretStr | None = Field(
        default=None, validation_alias=_bare("GEMINI_API_KEY"), description="Key of Gemini."
    )
    gemini_base_url: str | None = Field(
        default=None, validation_alias=_bare("GEMINI_BASE_URL"), description="Its address."
    )

    # Later parts
    redis_url: str | None = Field(
        default=None,
        description="Redis that carries confirmations between processes; unset: the data folder.",
    )
    enable_conversation_compression: bool = Field(
        default=False,
        validation_alias=_bare("ENABLE_CONVERSATION_COMPRESSION"),
        description="Compress stored conversations.",
    )
    workspace_enabled: bool = Field(default=False, description="Offer the workspace MCP server.")
    workspace_dir: Path = Field(default=Path("workspace"), description="Its folder.")
    sandbox: Literal["docker", "bubblewrap", "process"] = Field(
        default="process", description="How the workspace is isolated."
    )
    test_words_per_second: float = Field(
        default=50, ge=0, description="Pace of test mode; 0 for none."
    )
    test_cancel_after_words: int | None = Field(
        default=None, ge=0, description="Where test mode cuts every reply; unset: nowhere."
    )

    @field_validator("cors_origins", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [item.strip() for item in value.split(",") if item.strip()]
        return value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: list[str]) -> list[str]:
        for origin in value:
            parts = urlsplit(origin)
            if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path:
                raise ValueError(f"{origin!r} is not an origin such as http://localhost:3000")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("environment", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("ollama_host")
    @classmethod
    def _is_url(cls, value: str) -> str:
        text = value.rstrip("/")
        if "//" not in text:
            text = f"http://{text}"
        parts = urlsplit(text)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.query
            or parts.fragment
            or not _PORT.fullmatch(parts.netloc)
        ):
            raise ValueError("must be an address such as http://localhost:11434")
        if parts.port is None and parts.scheme == "http" and "//" not in value:
            text = f"{text}:11434"
        return text

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        where = parts.path if parts.scheme == "unix" else parts.hostname
        schemes = {"redis", "rediss", "unix"}
        if parts.scheme not in schemes or not where or not _PORT.fullmatch(parts.netloc):
            raise ValueError("must be an address such as redis://localhost:6379/0")
        return value

    @field_validator("ollama_keep_alive")
    @classmethod
    def _is_duration(cls, value: str | None) -> str | None:
        if value is None or _DURATION.fullmatch(value):
            return value
        raise ValueError("must be seconds (300), or a duration such as 5m, 1h, -1m")

    @field_validator("api_token")
    @classmethod
    def _is_set(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().strip():
            return None
        return value

    @model_validator(mode="after")
    def _isolate_tests(self) -> MochiServerSettings:
        """Test mode keeps nothing, and reaches nothing."""
        if self.environment == "test":
            self.session_storage = "memory"
            self.redis_url = None
            if "port" not in self.model_fields_set:
                self.port = TEST_PORT
        return self

    def within_data(self, path: Path) -> Path:
        """The absolute place of a folder that is given relative to ``data_dir``."""
        return (self.data_dir.expanduser() / path.expanduser()).absolute()

    @property
    def sessions_path(self) -> Path:
        """Absolute folder of the sessions."""
        return self.within_data(self.sessions_dir)

    @property
    def agent_chats_path(self) -> Path:
        """Absolute folder of the agents' sessions."""
        return self.within_data(self.agent_chats_dir)

    @property
    def tools_path(self) -> Path:
        """Absolute folder of the tools."""
        return self.within_data(self.tools_dir)

    @property
    def agents_path(self) -> Path:
        """Absolute folder of the agents."""
        return self.within_data(self.agents_dir)

    @property
    def state_path(self) -> Path:
        """Absolute folder of what processes on this data tell each other; may be deleted."""
        return self.within_data(Path(".mochi"))

    @property
    def sessions_state_path(self) -> Path:
        """Absolute folder of the same for the sessions, of which data may have several folders.

        It keeps its name when the data folder is moved.
        """
        data, sessions = map(os.path.realpath, (self.within_data(Path()), self.sessions_path))
        place = os.fsencode(os.path.relpath(sessions, data))
        return self.state_path / f"sessions-{blake2b(place, digest_size=4).hexdigest()}"

    @property
    def system_prompts_path(self) -> Path:
        """Absolute folder of the prompt files."""
        return self.within_data(self.system_prompts_dir)

    @property
    def models_path(self) -> Path:
        """Absolute folder of the built-in model's weights."""
        if self.models_dir is not None:
            return self.models_dir.expanduser().absolute()
        return user_cache_path("mochi-server") / "models"

    @property
    def max_body_bytes(self) -> int:
        """Largest request body in bytes."""
        return int(self.max_body_mb * 1_000_000)


def variable_of(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Values of ``NAME_FILE`` variables, for keys that are mounted as files.

    Raises:
        SettingsError: a named file cannot be read, or is no text.
    """
    found: dict[str, str] = {}
    for field in ("api_token", "openai_api_key", "anthropic_api_key", "gemini_api_key"):
        for name in (variable_of(field), field.upper()):
            path = environ.get(f"{name}_FILE")
            if not path or environ.get(name):
                continue
            try:
                found[field] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SettingsError(f"{name}_FILE={path}: {error.strerror}") from error
            except UnicodeDecodeError as error:
                raise SettingsError(f"{name}_FILE={path} is not UTF-8 text.") from error
            break
    return found


def load_settings(**values: Any) -> MochiServerSettings:  # noqa: ANN401 - checked by pydantic
    """The settings of the environment, with the given values before everything else.

    Raises:
        SettingsError: some value is not allowed, one line names each variable; or a file that
            holds settings cannot be read.
    """
    given = {**_secret_files(os.environ), **values}
    try:
        return MochiServerSettings(**given)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{Path('.env').absolute()} is not UTF-8 text.") from error
    except OSError as error:
        raise SettingsError(f"{Path('.env').absolute()}: {error.strerror}") from error
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise SettingsError("\n".join(lines)) from error


def _explain(problem: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    """``MOCHI_PORT: input should be less than or equal to 65535``."""
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    variable = name if name.isupper() else variable_of(name)
    text = str(problem["msg"]).removeprefix("Value error, ")
    given = os.environ.get(variable)
    if given and "@" in given and name.endswith(("_host", "_url")):
        given = f"…@{given.rpartition('@')[2]}"
    shown = f"={given!r}" if given is not None and "key" not in name and "token" not in name else ""
    return f"{variable}{shown}: {text[:1].lower()}{text[1:]}"


def _as_text(value: object) -> str:
    """A value as its variable would hold it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def export(values: Mapping[str, object]) -> None:
    """Put values into this process's environment, for the Django settings and the workers."""
    for field, value in values.items():
        if value is None:
            os.environ.pop(variable_of(field), None)
        else:
            os.environ[variable_of(field)] = _as_text(value)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mochi_project.settings")


def child_environment(**values: str) -> dict[str, str]:
    """This process's environment with some values more, without keys, tokens and passwords."""
    return {
        name: value
        for name, value in os.environ.items()
        if not _SECRET.search(name) and not _WITH_LOGIN.search(value)
    } | values


_WORKERS = re.compile(r"(?:--workers|-w)(?:=|\s+|(?<=-w))(\d+)")


def server_processes(settings: MochiServerSettings) -> int:
    """How many processes serve, as far as one of them can know.

    By the setting; else, in a process that another server's command has started, by the words of
    that command. Other ways of starting several are not noticed.
    """
    started = multiprocessing.parent_process() is not None
    if settings.workers > 1 or not (started or Path(sys.argv[0]).name == "gunicorn"):
        return settings.workers
    if found := _WORKERS.search(" ".join(sys.argv[1:])):
        return int(found[1])
    counts = (os.environ.get(name, "") for name in ("UVICORN_WORKERS", "WEB_CONCURRENCY"))
    return next((int(count) for count in counts if count.isdigit()), 1)


def tool_environment() -> dict[str, str]:
    """This process's environment for the user's own code: whole, without the server's secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OWN_SECRETS
        and not (name.endswith("_BASE_URL") and _WITH_LOGIN.search(value))
    }


def _own_secrets() -> frozenset[str]:
    """Variables with keys, tokens and passwords that the server's settings read."""
    fields = MochiServerSettings.model_fields
    secret = [name for name, field in fields.items() if "SecretStr" in str(field.annotation)]
    names = {variable_of(name) for name in [*secret, "redis_url", "ollama_host"]}
    names |= {name.upper() for name in secret if fields[name].validation_alias is not None}
    return frozenset(names | {f"{name}_FILE" for name in names})


_OWN_SECRETS = _own_secrets()


def unknown_variables() -> list[str]:
    """``MOCHI_`` variables of the environment that no setting reads: most likely misspelt."""
    known = {variable_of(field) for field in MochiServerSettings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
