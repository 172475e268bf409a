"""The settings: their names, types, defaults and limits, and the folders that they name."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from platformdirs import user_cache_path
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from ..constants import DURATION
from ..core.logs import LogFormat
from ..core.tokens import TOKENS

_HOST = re.compile(r"[^/:\s]+|\[?[0-9a-fA-F:.]+\]?")
"""A host name, or an address, in brackets or not; without scheme and port."""

_NETLOC = re.compile(r"(.*@)?(\[[^]]*\]|[^:]*)(:\d{1,5})?")
"""A network location whose port, if any, is a number. The standard library's error for another port
would show it, and it may be a part of a password with a slash in it."""

_DURATION = re.compile(DURATION)


def _split_at_commas(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _check_origins(value: list[str]) -> list[str]:
    for origin in value:
        parts = urlsplit(origin)
        if "*" in origin:
            raise ValueError(f"{origin!r} has a wildcard: name each origin, with its port")
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.path
            or not _NETLOC.fullmatch(parts.netloc)
        ):
            raise ValueError(f"{origin!r} is not an origin such as http://localhost:3000")
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _complete_address(value: str) -> str:
    text = value.rstrip("/")
    if re.fullmatch(r":\d+", text):  # Ollama's own programs take a port alone
        text = f"127.0.0.1{text}"
    if "//" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.query
        or parts.fragment
        or not _NETLOC.fullmatch(parts.netloc)
    ):
        raise ValueError("must be an address such as http://localhost:11434")
    if parts.port is None and parts.scheme == "http" and "//" not in value:
        text = f"{text}:11434"
    return text


def _check_hosts(value: list[str]) -> list[str]:
    for name in value:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name such as chat.example.org")
    return value


def _check_http_address(value: str) -> str:
    parts = urlsplit(value)
    is_address = parts.scheme in {"http", "https"} and parts.hostname
    if not is_address or parts.fragment or not _NETLOC.fullmatch(parts.netloc):
        raise ValueError("must be an address such as https://mochi.example/api/v1/…")
    return value


def _check_redis_address(value: str) -> str:
    parts = urlsplit(value)
    where = parts.path if parts.scheme == "unix" else parts.hostname
    schemes = {"redis", "rediss", "unix"}
    if parts.scheme not in schemes or not where or not _NETLOC.fullmatch(parts.netloc):
        raise ValueError("must be an address such as redis://localhost:6379/0")
    return value


def _check_database_address(value: str) -> str:
    """Have dj-database-url read the address, if it is installed; its errors do not show it."""
    scheme, _, rest = value.partition("://")
    if not scheme or not rest:
        raise ValueError("must be an address such as postgres://user:password@localhost/mochi")
    if find_spec("dj_database_url") is None:
        return value
    import dj_database_url  # noqa: PLC0415 - an extra

    if dj_database_url.parse(value).get("NAME") == ":memory:":
        raise ValueError("must name a file: each connection would have a memory of its own")
    return value


def _check_duration(value: str) -> str:
    if _DURATION.fullmatch(value):
        return value
    raise ValueError("must be seconds (300), or a duration such as 5m, 1h, -1m")


def _none_if_blank(value: SecretStr | None) -> SecretStr | None:
    return value if value is not None and value.get_secret_value().strip() else None


CommaList = Annotated[list[str], NoDecode, BeforeValidator(_split_at_commas)]
Origins = Annotated[CommaList, AfterValidator(_check_origins)]
HostNames = Annotated[CommaList, AfterValidator(_check_hosts)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]
LogForm = Annotated[LogFormat, BeforeValidator(_lower)]
Environment = Annotated[Literal["production", "test"], BeforeValidator(_lower)]
OllamaAddress = Annotated[str, Field(min_length=1), AfterValidator(_complete_address)]
RedisAddress = Annotated[str, AfterValidator(_check_redis_address)]
DatabaseAddress = Annotated[str, AfterValidator(_check_database_address)]
HTTPAddress = Annotated[str, AfterValidator(_check_http_address)]
Duration = Annotated[str, AfterValidator(_check_duration)]
"""Whole seconds, or a duration in the notation of Go."""
Megabytes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Millions of bytes."""
Token = Annotated[SecretStr | None, AfterValidator(_none_if_blank)]


PREFIX = "MOCHI_"

MCP_CALLBACK_PATH = "/api/v1/mcp/oauth/callback"
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]", "localhost"})  # noqa: S104 - to compare with

STATE = ".mochi"
"""Name of the folder, in the data folder, that processes share their state in."""

TEST_PORT = 5099
"""Port of test mode, unless one is set."""


def variable_of(field: str) -> str:
    return PREFIX + field.upper()


def _aliases(name: str) -> AliasChoices:
    """Name both variables of a setting: ``MOCHI_NAME`` and, as in other programs, ``NAME``."""
    return AliasChoices(f"{PREFIX}{name}", name)


def _optional(name: str, description: str) -> Any:  # noqa: ANN401 - as pydantic's
    return Field(default=None, validation_alias=_aliases(name), description=description)


class MochiServerSettings(BaseSettings):
    """The settings; a field is read from the variable ``MOCHI_`` + its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8-sig",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        validate_default=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def secret_fields(cls) -> list[str]:
        """Return the settings that may be in a file, which a variable ``NAME_FILE`` names."""
        secret = {SecretStr, DatabaseAddress}
        fields = cls.model_fields.items()
        return [name for name, field in fields if secret & {*get_args(field.annotation)}]

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        **sources: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Refuse arguments that are no settings; unknown environment variables are ignored here.

        Raises:
            TypeError: There is no setting of that name; the text names the most similar one.
        """
        fields, unprefixed = settings_cls.model_fields, cls.unprefixed_variables()
        for name in init_settings():
            if name not in fields and name.removeprefix(PREFIX) not in unprefixed:
                similar = get_close_matches(name.lower().removeprefix("mochi_"), fields, n=1)
                hint = f"; did you mean {similar[0]!r}?" if similar else ""
                raise TypeError(f"There is no setting {name!r}{hint}")
        return init_settings, *sources.values()

    @classmethod
    def unprefixed_variables(cls) -> set[str]:
        """Return the variables without the prefix that are read as well."""
        fields = cls.model_fields.items()
        return {name.upper() for name, field in fields if field.validation_alias is not None}

    # Server
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks one.")
    workers: int = Field(default=1, ge=1, le=64, description="Server processes.")
    playground: bool = Field(default=True, description="Whether a page to chat with is at /.")
    drawings: bool = Field(
        default=True, description="Whether the page draws diagrams and charts of answers."
    )
    public_dir: Path | None = Field(
        default=None, description="Folder of files that are served at / instead of the page."
    )
    log_level: LogLevel = Field(default="INFO", description="How much is logged.")
    log_format: LogForm = Field(
        default="console", description="Form of the log; json is one object a line."
    )
    metrics: bool = Field(
        default=False, description="Whether /metrics answers Prometheus; needs the extra metrics."
    )
    server_url: HTTPAddress | None = Field(
        default=None,
        description="Address of the server for chat and ask; unset: made of host and port.",
    )
    environment: Environment = Field(
        default="production", description="Mode of the server; test answers without any model."
    )
    shutdown_seconds: float = Field(
        default=10, ge=0, description="Longest wait for running turns when the server stops."
    )
    drain_seconds: float = Field(
        default=0,
        ge=0,
        description="Time that running turns have to finish after SIGTERM, before they are ended.",
    )

    # Ollama
    ollama_host: OllamaAddress = Field(
        default="http://localhost:11434", description="Address of Ollama."
    )
    ollama_first_byte_timeout_seconds: float = Field(
        default=600,
        gt=0,
        description="Longest wait for a reply's first byte: queue, model load, prompt.",
    )
    ollama_idle_timeout_seconds: float = Field(
        default=300, gt=0, description="Longest silence within a reply (tool calls are silent)."
    )
    ollama_keep_alive: Duration | None = Field(
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
    session_storage: Literal["json", "memory", "redis", "database"] = Field(
        default="json", description="Where sessions are kept."
    )
    database_url: DatabaseAddress | None = Field(
        default=None,
        validate_default=True,
        description="Database for sessions; a PostgreSQL is also for runs and confirmations.",
    )
    enable_conversation_compression: bool = Field(
        default=False,
        validation_alias=_aliases("ENABLE_CONVERSATION_COMPRESSION"),
        description="Write sessions in Redis with gzip.",
    )
    redis_session_retention_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        description="Days after its last change when a session in Redis expires; unset: never.",
    )
    max_owner_mb: Megabytes = Field(
        default=20_000,
        description="Most of the sessions and attachments of one owner together (10**6 bytes); "
        "those without an owner count as one.",
    )
    strip_images: bool = Field(
        default=False, description="Remove metadata from attached images; needs the extra images."
    )

    # Security
    api_token: Token = Field(
        default=None,
        description="Bearer token that every route but health and the documentation asks for.",
    )
    session_owners: bool = Field(
        default=False,
        description="Whether others do not see the sessions that a token has made.",
    )
    audit_log: bool = Field(
        default=True, description="Whether decisions and changes are written to `audit.jsonl`."
    )
    cors_origins: Origins = Field(
        default=[], description="Origins of web pages that may use the server, comma-separated."
    )
    allowed_hosts: HostNames = Field(
        default=[],
        description="Host names to answer for, comma-separated, beside loopback and the address.",
    )
    trusted_proxies: CommaList = Field(
        default=[],
        description="Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto "
        "are believed, comma-separated; *: of all.",
    )
    max_body_mb: Megabytes = Field(
        default=10,
        description="Largest request body (10**6 bytes); all other limits of sizes follow from it.",
    )

    max_connections_per_address: int = Field(
        default=256,
        ge=1,
        description="Most connections of one address at the same time; loopback has no limit.",
    )
    max_runs: int = Field(
        default=2000,
        ge=1,
        description="Most runs at the same time; requests, WebSockets and queues follow from it.",
    )
    max_caller_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Largest part of such a number that one token or address may have.",
    )

    # Turns
    heartbeat_seconds: float = Field(
        default=15,
        gt=0,
        description="Pause after which a stream carries a comment; a client may not read for four.",
    )
    socket_frames_per_second: float = Field(
        default=100,
        ge=1,
        allow_inf_nan=False,
        description="Most frames a second that a client sends on a WebSocket.",
    )
    ollama_at_root: bool = Field(
        default=False,
        description="Whether Ollama's API is at /api too, where its clients look for it.",
    )
    keep_wire_sessions: bool = Field(
        default=False,
        description="Whether conversations that clients of vendors' APIs send whole are kept.",
    )
    on_disconnect: Literal["cancel", "continue"] = Field(
        default="cancel", description="What a run does when its last reader has left."
    )
    max_tool_rounds: int = Field(
        default=25, ge=1, description="Rounds of tool calls in one turn, and of an agent."
    )
    max_history_tokens: int | None = Field(
        default=None,
        ge=256,
        validation_alias=_aliases("MAX_HISTORY_TOKENS"),
        description="Most tokens of history to send; unset: what the window holds.",
    )
    max_history_messages: int | None = Field(
        default=None, ge=1, description="Most messages of history to send."
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        validation_alias=_aliases("MAX_OUTPUT_TOKENS"),
        description="Most tokens of one reply; unset: what the window leaves.",
    )
    compaction: bool = Field(
        default=True,
        description="Whether a summary is sent in the place of old messages that do not fit.",
    )
    dynamic_context_window_enabled: bool = Field(
        default=True, description="Size the context window by need."
    )
    context_window_beyond_modelfile: bool = Field(
        default=False,
        description="Let windows grow beyond the PARAMETER num_ctx of a Modelfile.",
    )

    # Tools
    tool_timeout_seconds: float = Field(default=60, gt=0, description="Longest run of a tool.")
    tool_confirmation_timeout_seconds: float = Field(
        default=300, ge=0, le=1e9, description="Longest wait for a person's decision; 0: no limit."
    )
    tool_workers: int = Field(
        default=8, ge=1, le=256, description="Most processes for the calls of one tool folder."
    )
    tool_memory_mb: Megabytes = Field(
        default=1024, description="Most memory of such a process (10**6 bytes)."
    )
    text_calls: Literal["on", "ask", "off"] = Field(
        default="on",
        description="Calls that models write as text: on (those of harmless tools run, a person is "
        "asked about others), ask, or off.",
    )
    tool_env: CommaList = Field(
        default=[],
        description="Names of variables that tools get, beside PATH, HOME, LANG, TZ and TMPDIR.",
    )
    tool_working_dir: Path = Field(
        default=Path(), description="Working directory of tools and agents."
    )
    mcp_config: Path = Field(default=Path("mcp.json"), description="File of MCP servers.")
    mcp_allowed_commands: CommaList = Field(
        default=[],
        description="Programs that MCP servers may be started by, comma-separated; none: any.",
    )
    mcp_offered_tools: CommaList = Field(
        default=["*"],
        description="Patterns of the names of tools that MCP clients are offered, comma-separated.",
    )
    mcp_redirect_url: HTTPAddress | None = Field(
        default=None,
        description="Address of /api/v1/mcp/oauth/callback for browsers; unset: made of host and "
        "port.",
    )
    tool_sandbox: Literal["none", "bubblewrap"] = Field(
        default="none", description="Sandbox of the processes of tools."
    )
    sandbox: Literal["auto", "bubblewrap", "docker", "process"] = Field(
        default="auto",
        description="Sandbox of workspaces and MCP servers; auto is bubblewrap, where it works.",
    )

    # Workspaces
    workspace_enabled: bool = Field(
        default=False, description="Whether each session has a folder of files."
    )
    max_workspaces_mb: Megabytes = Field(
        default=20_000, description="Size of all folders of sessions together (10**6 bytes)."
    )
    workspace_retention_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        description="Days after which a folder that was not used is deleted; unset: never.",
    )

    # Summaries
    summarization_enabled: bool = Field(default=True, description="Summarise in the background.")
    summarization_interval_seconds: float = Field(
        default=3, ge=0, description="Quiet time before a summary."
    )

    # The built-in model
    models_dir: Path | None = Field(
        default=None, description="Folder of GGUF files; unset: the user's cache folder."
    )

    # Other providers
    openai_api_key: SecretStr | None = _optional("OPENAI_API_KEY", "Key of OpenAI.")
    openai_base_url: str | None = _optional(
        "OPENAI_BASE_URL", "Address of any OpenAI-compatible server."
    )
    anthropic_api_key: SecretStr | None = _optional("ANTHROPIC_API_KEY", "Key of Anthropic.")
    anthropic_base_url: str | None = _optional("ANTHROPIC_BASE_URL", "Its address.")
    gemini_api_key: SecretStr | None = _optional("GEMINI_API_KEY", "Key of Gemini.")
    gemini_base_url: str | None = _optional("GEMINI_BASE_URL", "Its address.")

    # Several processes
    redis_url: RedisAddress | None = Field(
        default=None,
        validate_default=True,
        description="Redis for signals between processes, and for sessions if wanted.",
    )

    # Test mode
    test_words_per_second: float = Field(
        default=50, ge=0, description="Pace of test mode; 0 for none."
    )
    test_cancel_after_words: int | None = Field(
        default=None, ge=0, description="Where test mode cuts every reply; unset: nowhere."
    )

    @field_validator("redis_url", "database_url")
    @classmethod
    def _check_sessions(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Name what is missing; test mode uses neither."""
        storage = info.data.get("session_storage")
        is_needed = f"{storage}_url" == info.field_name
        if is_needed and value is None and info.data.get("environment") != "test":
            raise ValueError(f"must be set: MOCHI_SESSION_STORAGE is {storage}")
        return value

    @model_validator(mode="after")
    def _isolate_tests(self) -> MochiServerSettings:
        """Let test mode store nothing and reach no other service."""
        if self.environment == "test":
            self.session_storage = "memory"
            self.redis_url = self.database_url = None
            if "port" not in self.model_fields_set:
                self.port = TEST_PORT
                self.model_fields_set.discard("port")  # it remains a default
        return self

    @property
    def data_folder_problem(self) -> str | None:
        """Why the working directory is not accepted as the data folder; None if it is one.

        A data folder was named, made by ``mochi-server init``, or used before. Any other folder is
        a user's project, whose files must not be run as tools.
        """
        traces = (self.state_path, self.within_data(Path("chat_sessions")))
        if "data_dir" in self.model_fields_set or any(path.is_dir() for path in traces):
            return None
        return (
            f"{self.within_data(Path())} is no data folder of mochi-server. If it were one, "
            "Python files in its folders tools and agents would be run, and conversations be kept "
            "in it."
        )

    def within_data(self, path: Path) -> Path:
        """Return the absolute path of a folder that is relative to ``data_dir``."""
        return (self.data_dir.expanduser() / path.expanduser()).absolute()

    @property
    def sessions_path(self) -> Path:
        return self.within_data(self.sessions_dir)

    @property
    def agent_chats_path(self) -> Path:
        return self.within_data(self.agent_chats_dir)

    @property
    def tools_path(self) -> Path:
        return self.within_data(self.tools_dir)

    @property
    def tool_working_path(self) -> Path:
        """Absolute working directory of tools and agents: the data folder, unless set."""
        return self.within_data(self.tool_working_dir)

    @property
    def agents_path(self) -> Path:
        return self.within_data(self.agents_dir)

    @property
    def workspace_path(self) -> Path:
        return self.within_data(Path("workspaces"))

    @property
    def state_path(self) -> Path:
        """Absolute folder of the state that processes share; may be deleted while none runs."""
        return self.within_data(Path(STATE))

    @property
    def rules_path(self) -> Path:
        """Absolute path of the rules that decide about tool calls, which people may edit."""
        return self.within_data(Path("policies.json"))

    @property
    def tokens_path(self) -> Path:
        """Absolute path of the hashes of tokens, which people may read."""
        return self.within_data(Path(TOKENS))

    @property
    def token_use_path(self) -> Path:
        """Absolute folder of files whose times say when tokens were used last."""
        return self.state_path / "tokens"

    @property
    def audit_path(self) -> Path | None:
        """Absolute path of the audit log; None where none is written."""
        if not self.audit_log or self.session_storage == "memory":
            return None
        return self.within_data(Path("audit.jsonl"))

    @property
    def audit_lock_path(self) -> Path:
        """Absolute path of the file that processes lock to write the audit log."""
        return self.state_path / "audit.lock"

    @property
    def demands_token(self) -> bool:
        """Whether requests need a token."""
        return self.api_token is not None or os.path.lexists(self.tokens_path)

    @property
    def attachments_path(self) -> Path:
        """Absolute folder of files that belong to messages."""
        return self.within_data(Path("attachments"))

    @property
    def mcp_config_path(self) -> Path:
        """Absolute path of the file of MCP servers, which people may edit."""
        return self.within_data(self.mcp_config)

    @property
    def mcp_callback_url(self) -> str:
        """Address that browsers come back to when a person has authorized an MCP server."""
        if self.mcp_redirect_url is not None:
            return self.mcp_redirect_url
        return f"{self.local_url}{MCP_CALLBACK_PATH}"

    @property
    def local_url(self) -> str:
        """Address of a server with these settings, for programs of this machine."""
        host = "127.0.0.1" if self.host in _EVERY_ADDRESS else self.host.strip("[]")
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    @property
    def approved_tools_path(self) -> Path:
        """Absolute path of the hashes of the MCP tools that were approved."""
        return self.within_data(Path("approved_tools.json"))

    @property
    def processes_path(self) -> Path:
        """Where each server process has a file while it lives."""
        return self.state_path / "processes"

    @property
    def sessions_state_path(self) -> Path:
        """Absolute folder of the shared state of one folder of sessions.

        It keeps its name when the data folder is moved.
        """
        data, sessions = map(os.path.realpath, (self.within_data(Path()), self.sessions_path))
        relative = os.fsencode(os.path.relpath(sessions, data))
        return self.state_path / f"sessions-{blake2b(relative, digest_size=4).hexdigest()}"

    @property
    def public_path(self) -> Path | None:
        """Absolute folder that is served instead of the page."""
        return self.within_data(self.public_dir) if self.public_dir is not None else None

    @property
    def system_prompts_path(self) -> Path:
        return self.within_data(self.system_prompts_dir)

    @property
    def presets_path(self) -> Path:
        return self.within_data(Path("presets"))

    @property
    def models_path(self) -> Path:
        """Absolute folder of the built-in model's weights."""
        if self.models_dir is not None:
            return self.models_dir.expanduser().absolute()
        return user_cache_path("mochi-server") / "models"

    @property
    def client_stall_seconds(self) -> float:
        """Longest time that a client may not read its stream."""
        return 4 * self.heartbeat_seconds

    @property
    def max_body_bytes(self) -> int:
        """Of a request; also of an attached file and of a model's reply."""
        return int(self.max_body_mb * 1_000_000)

    @property
    def max_wire_body_bytes(self) -> int:
        """Of a request on the APIs of vendors, which carries the whole history."""
        return int(self.max_body_mb * 3_200_000)

    @property
    def max_import_bytes(self) -> int:
        """Of a conversation of an import."""
        return int(self.max_body_mb * 10_000_000)

    @property
    def max_upload_bytes(self) -> int:
        """Of a file that is imported, which is on the disk."""
        return int(self.max_body_mb * 100_000_000)

    @property
    def socket_frame_bytes(self) -> int:
        """Of a frame that a client sends on a WebSocket."""
        return int(self.max_body_mb * 100_000)

    @property
    def max_requests(self) -> int:
        """Most requests at the same time, streams included; and most WebSockets."""
        return max(100, 2 * self.max_runs)

    @property
    def max_queued_runs(self) -> int:
        """Most runs that wait in queues at the same time."""
        return max(10, self.max_runs // 10)
