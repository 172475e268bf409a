"""What is replaceable: an alias, the dotted path of a class, and its options.

One table of what is there by default serves the library and its Django face, whose settings
``MOCHI_PROVIDERS`` and ``MOCHI_SESSION_STORAGES`` have the same shape::

    {"default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .config import MochiServerSettings, SettingsError, secret_files
from .plugins import load_problem, plugins, why

if TYPE_CHECKING:
    from .providers.base import Provider
    from .sessions.storage.base import SessionStorage
    from .state import Signals, State
    from .tools.base import ToolSource
    from .tools.loading import ToolLoader
    from .tools.mcp.servers.registry import McpServers
    from .tools.mcp.transports.sandboxed import SandboxLauncher
    from .workspace.session_folders import SessionFolders

Backends = dict[str, dict[str, Any]]

T = TypeVar("T")

JSON_FILES = "mochi_server.sessions.storage.json_files.JSONFileStorage"
"""The storage in the data folder."""


class NotABackend(ImportError):
    """A dotted path leads to nothing, or to something else; the text says what."""


def _backend(path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - of any class
    return {"BACKEND": f"mochi_server.{path}", "OPTIONS": options}


def default_providers(settings: MochiServerSettings) -> Backends:
    """Return all providers; in test mode only the one for tests.

    Those without their key are there too: a model of theirs is then a named error, and nothing
    else shows them. Those of installed packages come last, and take no name of another.
    """
    test = _backend(
        "testmode.provider.ScriptedProvider",
        words_per_second=settings.test_words_per_second,
        cancel_after_words=settings.test_cancel_after_words,
        listed=settings.environment == "test",
    )
    if settings.environment == "test":
        return {"test": test}
    own = {**_own_providers(settings), "test": test}
    brought = {
        plugin.name: {"BACKEND": plugin.path, "PACKAGE": plugin.package}
        for plugin in plugins("mochi_server.providers")
    }
    return {**own, **{alias: each for alias, each in brought.items() if alias not in own}}


def _own_providers(settings: MochiServerSettings) -> Backends:
    return {
        "ollama": _backend(
            "providers.ollama.OllamaProvider",
            host=settings.ollama_host,
            first_byte_timeout=settings.ollama_first_byte_timeout_seconds,
            idle_timeout=settings.ollama_idle_timeout_seconds,
            keep_alive=settings.ollama_keep_alive,
        ),
        "local": _backend(
            "providers.builtin.provider.LocalProvider",
            models_path=settings.models_path,
        ),
        "openai": _backend(
            "providers.openai.OpenAICompatibleProvider",
            api_key=settings.openai_api_key,
            base_url=settings.openai_base_url,
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
    }


def default_storages(settings: MochiServerSettings, *, database: str | None = None) -> Backends:
    """Return ``default`` for the sessions of people, ``agent_chats`` for those of agents.

    ``database``: dotted path of the storage in a database, from those who have one.

    Raises:
        SettingsError: the sessions are to be in a database, and nobody has a storage for it.
    """
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
        if database is None:
            raise SettingsError(
                "Sessions in a database need Django: Runtime(settings, "
                "storages=mochi_server.app.session_storages(settings))."
            )
        return {
            alias: {"BACKEND": database, "OPTIONS": {"name": name}}
            for alias, name in (("default", "sessions"), ("agent_chats", "agent_chats"))
        }
    return {
        "default": {"BACKEND": JSON_FILES, "OPTIONS": {"folder": settings.sessions_path}},
        "agent_chats": {"BACKEND": JSON_FILES, "OPTIONS": {"folder": settings.agent_chats_path}},
    }


def build_state(settings: MochiServerSettings) -> State:
    """Build the state that the processes of one machine share; in memory where nothing is kept."""
    from .chat.confirmations.former import FormerConfirmations  # noqa: PLC0415 - a quicker start without
    from .state import SQLiteState  # noqa: PLC0415

    if settings.session_storage == "memory":
        return SQLiteState()
    folder = settings.state_path
    return SQLiteState(folder, conversion=FormerConfirmations(folder / "confirmations"))


def build_signals(settings: MochiServerSettings, state: State) -> Signals:
    """Build what tells the processes that share a state of its changes."""
    from .core.processes import are_several  # noqa: PLC0415 - a quicker start without
    from .state import Signals, SQLiteState, StateSignals  # noqa: PLC0415

    if settings.session_storage == "memory":
        return Signals()
    if not isinstance(state, SQLiteState):
        return StateSignals(state)
    return StateSignals(state, are_others=partial(are_several, settings.processes_path))


def build_state_of_runs(settings: MochiServerSettings) -> State:
    """Build the same for what runs say, which need not wait for the disk at each word."""
    from .chat.journal.former import FormerRuns  # noqa: PLC0415 - a quicker start without
    from .state import SQLiteState  # noqa: PLC0415

    if settings.session_storage == "memory":
        return SQLiteState()
    folder = settings.state_path
    conversion = FormerRuns(folder / "runs")
    return SQLiteState(folder, "runs", is_durable=False, conversion=conversion)


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


def package_problems(backends: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Try to load the providers of packages, side by side, and say by alias what hinders each."""
    paths = {alias: str(each["BACKEND"]) for alias, each in backends.items() if "PACKAGE" in each}
    with ThreadPoolExecutor(len(paths) or 1) as threads:
        return dict(zip(paths, threads.map(load_problem, paths, paths.values()), strict=True))


def build_provider(alias: str, backend: Mapping[str, Any], problem: str | None = None) -> Provider:
    """Build a provider; one without models where the ``PACKAGE`` that brings it has a problem."""
    from .providers.base import Provider  # noqa: PLC0415 - a quicker start of commands

    if "PACKAGE" not in backend:
        return build_backend(backend, Provider, alias)  # type: ignore[type-abstract]
    if problem is None:
        try:
            return build_backend(backend, Provider, alias)  # type: ignore[type-abstract]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others may do anything
            problem = why(error)
    from .providers.unusable import UnusableProvider  # noqa: PLC0415 - mostly none

    text = f"The package {backend['PACKAGE']} cannot be used: {problem}"
    return UnusableProvider(alias, problem=text)


def build_providers(backends: Mapping[str, Mapping[str, Any]]) -> dict[str, Provider]:
    problems = package_problems(backends)
    return {
        alias: build_provider(alias, backend, problems.get(alias))
        for alias, backend in backends.items()
    }


def build_storage(backend: Mapping[str, Any]) -> SessionStorage:
    from .sessions.storage.base import SessionStorage  # noqa: PLC0415 - the same

    return build_backend(backend, SessionStorage)  # type: ignore[type-abstract]


def build_storages(backends: Mapping[str, Mapping[str, Any]]) -> dict[str, SessionStorage]:
    return {alias: build_storage(backend) for alias, backend in backends.items()}


def build_tool_loader(settings: MochiServerSettings) -> ToolLoader:
    """Build what loads folders of tools; it starts no process before the first one."""
    from .tools.process.loader import ProcessLoader  # noqa: PLC0415 - a quicker start without
    from .tools.process.worker_process import WorkerOptions  # noqa: PLC0415

    confinement = None
    if settings.tool_sandbox != "none":
        from .sandbox import make_sandbox  # noqa: PLC0415
        from .tools.mcp.config.file import McpConfigFile  # noqa: PLC0415
        from .tools.process.confinement import ToolConfinement  # noqa: PLC0415

        mcp_config, named = McpConfigFile(settings.mcp_config_path), secret_files()
        confinement = ToolConfinement(
            sandbox=make_sandbox(settings.tool_sandbox),
            data=settings.within_data(Path()),
            secret_files=lambda: [*mcp_config.secret_files(), *named],
        )
    options = WorkerOptions(
        workers=settings.tool_workers,
        memory_mb=settings.tool_memory_mb,
        working_dir=settings.tool_working_path,
        variables=settings.tool_env,
        confinement=confinement,
    )
    return ProcessLoader(options)


def build_tool_sources(settings: MochiServerSettings, loader: ToolLoader) -> list[ToolSource]:
    """Build the source of the tools folder, and one for each entry point of a package."""
    from .tools.folder.snapshot import RELOAD_STAMP  # noqa: PLC0415
    from .tools.folder.source import DirectorySource  # noqa: PLC0415
    from .tools.loading import FolderSpec, PackageEntry  # noqa: PLC0415

    specs = [("directory", FolderSpec(path=settings.tools_path))]
    for plugin in plugins("mochi_server.tools"):
        entry = PackageEntry(plugin.name, plugin.module, plugin.attribute)
        specs.append((f"package:{plugin.name}", FolderSpec(path=plugin.place, entry=entry)))
    return [
        DirectorySource(
            spec,
            name=name,
            loader=loader,
            stamp=settings.state_path / RELOAD_STAMP,
            default_timeout=settings.tool_timeout_seconds,
        )
        for name, spec in specs
    ]


def build_sandbox_launcher(
    settings: MochiServerSettings, folders: SessionFolders
) -> SandboxLauncher:
    """Build what starts MCP servers in sandboxes."""
    from .tools.mcp.transports.sandboxed import SandboxLauncher  # noqa: PLC0415 - a quicker start without

    return SandboxLauncher(
        folders,
        listing_folder=settings.state_path / "empty-workspace",
    )


def build_mcp_servers(settings: MochiServerSettings, launcher: SandboxLauncher) -> McpServers:
    """Build what starts the MCP servers of the data folder; it starts none by itself."""
    from .tools.mcp.config.file import McpConfigFile  # noqa: PLC0415
    from .tools.mcp.oauth.authorizations import McpAuthorizations  # noqa: PLC0415 - a quicker start
    from .tools.mcp.servers.opening import TransportOpener  # noqa: PLC0415
    from .tools.mcp.servers.registry import McpServers  # noqa: PLC0415
    from .tools.mcp.transports.sandboxed import workspace_server  # noqa: PLC0415

    is_kept = settings.session_storage != "memory"
    opener = TransportOpener(
        McpAuthorizations(settings.state_path, redirect_url=settings.mcp_callback_url),
        variables=settings.tool_env,
        working_dir=settings.tool_working_path,
        launcher=launcher,
    )
    return McpServers(
        McpConfigFile(settings.mcp_config_path, allowed_commands=settings.mcp_allowed_commands),
        opener,
        default_timeout=settings.tool_timeout_seconds,
        cache_folder=settings.state_path / "mcp" if is_kept else None,
        approved_path=settings.approved_tools_path if is_kept else None,
        builtin=[workspace_server(settings.sandbox)] if settings.workspace_enabled else [],
    )
