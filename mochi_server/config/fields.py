"""What can be set: names, types, defaults and limits of the settings."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import AliasChoices, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from .values import (
    CommaList,
    DatabaseAddress,
    Duration,
    Environment,
    HostNames,
    HTTPAddress,
    LogForm,
    LogLevel,
    Megabytes,
    OllamaAddress,
    Origins,
    RedisAddress,
    Token,
)

PREFIX = "MOCHI_"


def variable_of(field: str) -> str:
    return PREFIX + field.upper()


def _aliases(name: str) -> AliasChoices:
    """Name both variables of a setting: ``MOCHI_NAME`` and, as in other programs, ``NAME``."""
    return AliasChoices(f"{PREFIX}{name}", name)


def _optional(name: str, description: str) -> Any:  # noqa: ANN401 - as pydantic's
    return Field(default=None, validation_alias=_aliases(name), description=description)


class SettingFields(BaseSettings):
    """What can be set; a field is read from the variable ``MOCHI_`` + its name in capitals."""

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
