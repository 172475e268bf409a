"""What is replaceable: an alias, the dotted path of a class, and its options.

One table of what is there by default serves the library and its Django face, whose settings
``MOCHI_PROVIDERS`` and ``MOCHI_SESSION_STORAGES`` have the same shape::

    {"default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .app import DATABASE_STORAGE
from .config import MochiServerSettings
from .providers.base import Provider
from .sessions.storage.base import SessionStorage
from .tools.base import ToolLoader

if TYPE_CHECKING:
    from .chat.confirmations.store import ConfirmationStore
    from .chat.journal.base import RunJournal
    from .chat.journal.signals import RunSignals
    from .tools.mcp.servers.registry import McpServers
    from .tools.mcp.transports.sandboxed import SandboxLauncher
    from .workspace.session_folders import SessionFolders

Backends = dict[str, dict[str, Any]]

T = TypeVar("T")

JSON_FILES = "mochi_server.sessions.storage.json_files.JSONFileStorage"
"""It needs Django, and so is a part of the face."""


class NotABackend(ImportError):
    """A dotted path leads to nothing, or to something else; the text says what."""


def _backend(path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - of any class
    return {"BACKEND": f"mochi_server.{path}", "OPTIONS": options}


def default_providers(settings: MochiServerSettings) -> Backends:
    """Return all providers; in test mode only the one for tests.

    Those without their key are there too: a model of theirs is then a named error, and nothing
    else shows them.
    """
    test = _backend(
        "testmode.provider.ScriptedProvider",
        words_per_second=settings.test_words_per_second,
        cancel_after_words=settings.test_cancel_after_words,
        listed=settings.environment == "test",
    )
    if settings.environment == "test":
        return {"test": test}
    return {
        "ollama": _backend(
            "providers.ollama.OllamaProvider",
            host=settings.ollama_host,
            connect_timeout=settings.ollama_connect_timeout_seconds,
            first_byte_timeout=settings.ollama_first_byte_timeout_seconds,
            idle_timeout=settings.ollama_idle_timeout_seconds,
            keep_alive=settings.ollama_keep_alive,
        ),
        "local": _backend(
            "providers.builtin.provider.LocalProvider",
            models_path=settings.models_path,
            idle_seconds=settings.local_idle_seconds,
            threads=settings.local_threads,
        ),
        "openai": _backend(
            "providers.openai.OpenAICompatibleProvider",
            api_key=settings.openai_api_key,
            base_url=settings.openai_base_url,
            organization=settings.openai_org_id,
            project=settings.openai_project_id,
        ),
        "anthropic": _backend(
            "providers.anthropic.AnthropicProvider",
            api_key=settings.anthropic_api_key,
            base_url=settings.anthropic_base_url,
            max_output_tokens=settings.max_output_tokens,
        ),
        "gemini": _backend(
            "providers.gemini.GeminiProvider",
            api_key=settings.gemini_api_key,
            base_url=settings.gemini_base_url,
            max_output_tokens=settings.max_output_tokens,
        ),
        "test": test,
    }


def default_storages(settings: MochiServerSettings) -> Backends:
    """Return ``default`` for the sessions of people, ``agent_chats`` for those of agents."""
    if settings.session_storage == "memory":
        memory = _backend("sessions.storage.memory.MemoryStorage")
        return {"default": memory, "agent_chats": memory}
    if settings.session_storage == "redis":
        options = {
            "url": settings.redis_url,
            "compress": settings.enable_conversation_compression,
            "retention_days": settings.redis_session_retention_days,
        }
        return {
            alias: _backend("sessions.storage.redis.RedisStorage", name=name, **options)
            for alias, name in (("default", "sessions"), ("agent_chats", "agent_chats"))
        }
    if settings.session_storage == "database":
        return {
            alias: {"BACKEND": DATABASE_STORAGE, "OPTIONS": {"name": name}}
            for alias, name in (("default", "sessions"), ("agent_chats", "agent_chats"))
        }
    return {
        "default": {"BACKEND": JSON_FILES, "OPTIONS": {"folder": settings.sessions_path}},
        "agent_chats": {"BACKEND": JSON_FILES, "OPTIONS": {"folder": settings.agent_chats_path}},
    }


def default_confirmations(settings: MochiServerSettings) -> Backends:
    """Return ``default``, the store of confirmations that the processes of a server share."""
    if settings.redis_url is not None:
        redis = "chat.confirmations.redis.RedisConfirmationStore"
        return {"default": _backend(redis, url=settings.redis_url)}
    if settings.session_storage == "memory":
        return {"default": _backend("chat.confirmations.memory.MemoryConfirmationStore")}
    files = "chat.confirmations.files.FileConfirmationStore"
    return {"default": _backend(files, folder=settings.state_path / "confirmations")}


def build_runs(settings: MochiServerSettings) -> tuple[RunJournal, RunSignals]:
    """Build what the processes of a server share of their runs."""
    from .chat.journal.files import FileRunJournal  # noqa: PLC0415 - a quicker start without
    from .chat.journal.memory import MemoryRunJournal  # noqa: PLC0415
    from .chat.journal.signals import FileRunSignals, RunSignals  # noqa: PLC0415

    if settings.session_storage == "memory":
        return MemoryRunJournal(), RunSignals()
    if settings.redis_url is None:
        folder = settings.state_path / "runs"
        return FileRunJournal(folder), FileRunSignals(folder)
    from .chat.journal.redis import RedisRunJournal  # noqa: PLC0415 - an extra
    from .chat.journal.redis_signals import RedisRunSignals  # noqa: PLC0415

    return RedisRunJournal(settings.redis_url), RedisRunSignals(settings.redis_url)


def import_class(backend: Mapping[str, Any], base: type[T]) -> type[T]:
    """Import the class that a backend names.

    Raises:
        NotABackend: It cannot be imported, or is no subclass of ``base``.
    """
    path = str(backend.get("BACKEND", ""))
    module, _, name = path.rpartition(".")
    if not module:
        raise NotABackend(f"{path!r} is not the dotted path of a class")
    try:
        value = getattr(import_module(module), name, None)
    except ImportError as error:
        raise NotABackend(f"{path} cannot be imported: {error}") from error
    if not (isinstance(value, type) and issubclass(value, base)):
        raise NotABackend(f"{path} is not a {base.__name__}")
    return value


def build_backend(backend: Mapping[str, Any], base: type[T], *arguments: object) -> T:
    """Build ``Backend(*arguments, **OPTIONS)``.

    Raises:
        NotABackend: The path leads to no subclass of ``base``.
    """
    return import_class(backend, base)(*arguments, **backend.get("OPTIONS", {}))


def build_provider(alias: str, backend: Mapping[str, Any]) -> Provider:
    return build_backend(backend, Provider, alias)  # type: ignore[type-abstract]


def build_storage(backend: Mapping[str, Any]) -> SessionStorage:
    return build_backend(backend, SessionStorage)  # type: ignore[type-abstract]


def build_confirmations(backend: Mapping[str, Any]) -> ConfirmationStore:
    from .chat.confirmations.store import ConfirmationStore  # noqa: PLC0415 - a quicker start without

    return build_backend(backend, ConfirmationStore)  # type: ignore[type-abstract]


def build_tool_loader(settings: MochiServerSettings) -> ToolLoader:
    """Build what loads folders of tools; it starts no process before the first one."""
    from .tools.process.loader import ProcessLoader  # noqa: PLC0415 - a quicker start without

    confinement = None
    if settings.tool_sandbox != "none":
        from .sandbox import make_sandbox  # noqa: PLC0415
        from .tools.process.confinement import ToolConfinement  # noqa: PLC0415

        confinement = ToolConfinement(
            sandbox=make_sandbox(settings.tool_sandbox), data=settings.within_data(Path())
        )
    return ProcessLoader(
        workers=settings.tool_workers,
        processes=settings.max_tool_processes,
        memory_mb=settings.tool_memory_mb,
        working_dir=settings.tool_working_path,
        variables=settings.tool_env,
        confinement=confinement,
    )


def build_sandbox_launcher(
    settings: MochiServerSettings, folders: SessionFolders
) -> SandboxLauncher:
    """Build what starts MCP servers in sandboxes."""
    from .tools.mcp.transports.sandboxed import SandboxLauncher  # noqa: PLC0415 - a quicker start without

    return SandboxLauncher(
        folders,
        listing_folder=settings.state_path / "empty-workspace",
        image=settings.sandbox_image,
    )


def build_mcp_servers(settings: MochiServerSettings, launcher: SandboxLauncher) -> McpServers:
    """Build what starts the MCP servers of the data folder; it starts none by itself."""
    from .tools.mcp.config.file import McpConfigFile  # noqa: PLC0415
    from .tools.mcp.oauth.authorizations import McpAuthorizations  # noqa: PLC0415 - a quicker start
    from .tools.mcp.servers.registry import McpServers  # noqa: PLC0415
    from .tools.mcp.transports.sandboxed import workspace_server  # noqa: PLC0415

    allowed = settings.mcp_allowed_commands
    is_kept = settings.session_storage != "memory"
    return McpServers(
        McpConfigFile(settings.mcp_config_path, allowed_commands=allowed),
        idle_seconds=settings.mcp_idle_seconds,
        variables=settings.tool_env,
        working_dir=settings.tool_working_path,
        allowed_commands=allowed,
        cache_folder=settings.state_path / "mcp" if is_kept else None,
        approved_path=settings.approved_tools_path if is_kept else None,
        authorizations=McpAuthorizations(
            settings.state_path, redirect_url=settings.mcp_callback_url
        ),
        builtin=[workspace_server(settings.sandbox)] if settings.workspace_enabled else [],
        launcher=launcher,
    )
