"""Builds all parts from the settings and puts them together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio
from typing_extensions import Self

from .agents import AgentDiscoveryService, AgentSource, PromptLoader
from .agents.execution import AgentExecutionService
from .agents.folder import RELOAD_STAMP as AGENTS_STAMP
from .agents.models import AgentModels
from .backends import (
    build_mcp_servers,
    build_providers,
    build_sandbox_launcher,
    build_signals,
    build_state,
    build_state_of_runs,
    build_storages,
    build_tool_loader,
    build_tool_sources,
    default_providers,
    default_storages,
)
from .chat import ChatService, Conversations, RequestLimits, RunRegistry, StatusService
from .chat.completions import CompletionService
from .chat.confirmations.feed import ConfirmationFeed
from .chat.confirmations.inbox import ConfirmationInbox
from .chat.confirmations.state import StateConfirmationStore
from .chat.confirmations.store import ConfirmationStore
from .chat.control import RunControl
from .chat.journal.journal import RunJournal
from .chat.recovery import RunRecovery
from .chat.responses import ResponseService
from .chat.rules.places import MemoryRuleStore, RulePlaces
from .chat.rules.rule import RuleFile
from .chat.runs.requests import RunRequests
from .chat.turn_checks import TurnChecks
from .chat.unattended import UnattendedRuns
from .config import (
    MochiServerSettings,
    SettingsError,
    load_settings,
    metrics_folder,
    traces_are_wanted,
)
from .config.installation import install_command
from .core.aio import BackgroundTasks
from .core.audit import AuditLog
from .core.space import SpaceLimit
from .errors import ShuttingDown, StorageError
from .providers.base import Provider
from .providers.registry import ProviderRegistry
from .providers.status import ProviderChecks
from .services.compaction.service import CompactionService
from .services.compaction.writer import CompactionWriter
from .services.context_window import LOOK_SECONDS, DynamicContextWindowService
from .services.models.presets import PresetService
from .services.models.pulls import ModelPulls
from .services.models.resolver import ModelResolver
from .services.summaries.schedule import LastReadConversations, SummaryScheduler
from .services.summaries.writer import SummaryWriter
from .services.summarization import SummarizationService
from .services.summary_model import SummaryModelManager
from .services.system_prompts import SystemPromptService
from .sessions import SessionManager
from .sessions.attachments import AttachmentReader, AttachmentStore, MemoryAttachmentStore
from .sessions.attachments.sweeping import AttachmentSweeper
from .sessions.catalogue.catalogue import CATALOGUE
from .sessions.catalogue.rows import ids_of_owner
from .sessions.catalogue.search import SessionSearch
from .sessions.storage.base import SessionStorage
from .sessions.storage.memory import MemoryStorage
from .state import Signals, State
from .tools.catalogue import ToolCatalogue
from .tools.execution import ToolExecutionService
from .tools.mcp.prompts import McpPrompts
from .tools.mcp.resources import McpResources
from .tools.mcp.servers.feed import McpFeed
from .tools.mcp.source import McpSource
from .tools.mcp.transports.sandboxed import WORKSPACE
from .workspace.session_folders import SessionFolders

if TYPE_CHECKING:
    from .observability.metrics import Metrics
    from .observability.tracing import Tracing

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
"""Longest wait for background work at the end."""


async def _redis_answers(url: str) -> bool:
    from .core.redis import is_writable  # noqa: PLC0415 - an extra

    return await is_writable(url)


def _settings_of(
    settings: MochiServerSettings | str | os.PathLike[str] | None,
) -> MochiServerSettings:
    if settings is None:
        settings = load_settings()
    elif isinstance(settings, (str, os.PathLike)):
        settings = load_settings(data_dir=settings)
    elif not isinstance(settings, MochiServerSettings):
        raise TypeError(
            f"Runtime takes MochiServerSettings or the path of the data folder, not {settings!r}."
        )
    if (problem := settings.data_folder_problem) is not None:
        raise SettingsError(
            f"{problem} Name the folder: Runtime(MochiServerSettings(data_dir=…)), or "
            "MOCHI_DATA_DIR; . is the working directory."
        )
    return settings


class Runtime:
    """All parts that a server or a user of the library needs.

    Building it does no input or output; connections and child processes are opened at first use.
    """

    metrics: Metrics | None = None
    """Made by ``observe`` where they are switched on."""
    _tracing: Tracing | None = None

    def __init__(
        self,
        settings: MochiServerSettings | str | os.PathLike[str] | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        storages: Mapping[str, SessionStorage] | None = None,
        state: State | None = None,
        signals: Signals | None = None,
        confirmations: ConfirmationStore | None = None,
        tools: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Build all parts.

        Args:
            settings: The settings, or the path of the data folder. Whatever is not given comes from
                the environment and ``.env``, except with a ``MochiServerSettings``.
            providers: Providers by alias, instead of those of the settings.
            storages: ``default`` and ``agent_chats``, instead of those of the settings.
            state: What processes share, instead of the data folder, or of nothing with sessions in
                memory.
            signals: What tells processes of changes, instead of looks at the state.
            confirmations: Store of confirmations, instead of one in the state.
            tools: Functions of the caller that sessions can use beside the tools of the folder;
                of two with one name the function wins. They run in threads of this process.

        Raises:
            SettingsError: no data folder is named, and the working directory is none; or a setting
                of the environment has a value that is not allowed.
            TypeError: ``settings`` is neither settings nor a path.
            ValueError: a function cannot be a tool.
        """
        self.settings = settings = _settings_of(settings)
        if providers is None:
            providers = build_providers(default_providers(settings))
        self.providers = ProviderRegistry(providers)
        self._add_sessions(storages)
        self._add_models(tools)
        self._add_runs(state, signals, confirmations)
        self._add_chat()

    def _add_sessions(self, storages: Mapping[str, SessionStorage] | None) -> None:
        """Build what keeps sessions, their folders, and the search in them."""
        settings = self.settings
        if storages is None:
            storages = build_storages(default_storages(settings))
        self.storages = dict(storages)
        self.sessions = SessionManager(
            self.storages["default"], catalogue_path=settings.sessions_state_path / CATALOGUE
        )
        self.session_folders = SessionFolders(
            settings.workspace_path,
            self.sessions,
            retention_days=settings.workspace_retention_days,
            limit_mb=settings.max_workspaces_mb,
        )
        self.agent_sessions = SessionManager(self.storages["agent_chats"])
        self.temporary_sessions = SessionManager(MemoryStorage())
        self.search = SessionSearch(self.sessions.catalogue)

    def _add_models(self, tools: Sequence[Callable[..., Any]]) -> None:
        """Build models and what they have: windows, tools, agents, summaries, attachments."""
        settings = self.settings
        self.context_window = DynamicContextWindowService(
            enabled=settings.dynamic_context_window_enabled,
            beyond_modelfile=settings.context_window_beyond_modelfile,
            look_seconds=0.0 if settings.workers > 1 else LOOK_SECONDS,
        )
        self.tool_loader = build_tool_loader(settings)
        self.sandbox_launcher = build_sandbox_launcher(settings, self.session_folders)
        self.mcp = build_mcp_servers(settings, self.sandbox_launcher)
        self.tools = self._catalogue(tools)
        self.presets = PresetService(settings.presets_path)
        self.agents = self._agent_discovery()
        self.models = ModelResolver(
            self.providers,
            {
                "preset": self.presets,
                "agent": AgentModels(self.agents, max_rounds=settings.max_tool_rounds),
            },
        )
        self.pulls = ModelPulls(self.providers)
        self.summaries, self.compaction = self._summarization()
        self.attachments = self._attachment_store()
        self.attachment_reader = AttachmentReader(
            max_bytes=settings.max_body_bytes, strip_images=settings.strip_images
        )

    def _add_runs(
        self,
        state: State | None,
        signals: Signals | None,
        confirmations: ConfirmationStore | None,
    ) -> None:
        """Build runs and confirmations, and what looks after sessions, models and servers."""
        settings = self.settings
        self.background = BackgroundTasks()
        self._cleaners = BackgroundTasks()  # delete what is unused, until the runtime is closed
        self.state = state or build_state(settings)
        self.signals = signals or build_signals(settings, self.state)
        self.confirmations = confirmations or StateConfirmationStore(
            self.state, signals=self.signals
        )
        self._state_of_runs = state or build_state_of_runs(settings)
        self.runs = self._run_registry(self._state_of_runs)
        self.mcp_feed = McpFeed(self.mcp)
        self.mcp_prompts = McpPrompts(self.mcp)
        self.mcp_resources = McpResources(self.mcp, self.attachment_reader)
        self.prompts = SystemPromptService(settings.system_prompts_path, self.mcp_prompts)
        self._follow_deletions()
        self.tool_execution = ToolExecutionService(
            in_order=settings.environment == "test",
            attachments=self.attachments,
        )
        self.confirmation_feed = ConfirmationFeed(self.confirmations)
        self.provider_checks = ProviderChecks(
            self.providers,
            tasks=self.background,
            redis=None
            if settings.redis_url is None
            else partial(_redis_answers, settings.redis_url),
        )

    def _add_chat(self) -> None:
        """Build what opens turns, and what clients do with them."""
        conversations = self._conversations()
        self.agent_source = AgentSource(self.agents, self._agent_runner(conversations))
        rule_places = RulePlaces(
            MemoryRuleStore()
            if self.settings.session_storage == "memory"
            else RuleFile(self.settings.rules_path),
            self.sessions,
        )
        self.inbox = ConfirmationInbox(
            store=self.confirmations,
            rule_places=rule_places,
            tools=self.tools,
            agents=self.agent_source,
            resume=self._resume,
            audit=self.audit,
        )
        self.chat = self._chat_service(conversations)
        self.run_control = RunControl(self.chat)
        self.unattended_runs = UnattendedRuns(self.chat)
        self.completions = self._completion_service(rule_places)
        self.responses = ResponseService(
            completions=self.completions, sessions=self.sessions, attachments=self.attachments
        )
        self.status = StatusService(
            sessions=self.sessions,
            models=self.models,
            providers=self.providers,
            windows=self.context_window,
            runs=self.runs,
            tools=self.tools,
            agents=self.agent_source,
        )

    def _conversations(self) -> Conversations:
        settings = self.settings
        return Conversations(
            providers=self.providers,
            windows=self.context_window,
            limits=RequestLimits(
                max_output_tokens=settings.max_output_tokens,
                max_history_tokens=settings.max_history_tokens,
                max_history_messages=settings.max_history_messages,
                max_reply_mb=settings.max_body_mb,
            ),
            attachments=self.attachments,
            text_calls=settings.text_calls,
            compaction=self.compaction,
            preempt=self.summaries.preempt,
        )

    def _chat_service(self, conversations: Conversations) -> ChatService:
        settings = self.settings
        return ChatService(
            sessions=self.sessions,
            conversations=conversations,
            runs=self.runs,
            checks=TurnChecks(
                conversations=conversations,
                models=self.models,
                tools=self.tools,
                agents=self.agent_source,
            ),
            execution=self.tool_execution,
            inbox=self.inbox,
            summaries=self.summaries,
            max_tool_rounds=settings.max_tool_rounds,
            confirmation_timeout=settings.tool_confirmation_timeout_seconds,
        )

    def _completion_service(self, rule_places: RulePlaces) -> CompletionService:
        sessions = self.temporary_sessions
        inbox = replace(self.inbox, rule_places=replace(rule_places, sessions=sessions))
        return CompletionService(
            chat=self.chat,
            temporary=replace(self.chat, sessions=sessions, inbox=inbox, is_temporary=True),
            run_control=self.run_control,
            keeps_all=self.settings.keep_wire_sessions,
        )

    @cached_property
    def audit(self) -> AuditLog:
        """Who has decided and changed what."""
        return AuditLog(self.settings.audit_path, self.settings.audit_lock_path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _attachment_store(self) -> AttachmentStore:
        """Return the store, which has one limit with the sessions."""
        settings = self.settings
        store = (
            MemoryAttachmentStore()
            if settings.session_storage == "memory"
            else AttachmentStore(settings.attachments_path)
        )
        self.sessions.space = store.space = SpaceLimit(
            "sessions and attachments of one owner",
            settings.max_owner_mb,
            "MOCHI_MAX_OWNER_MB",
            self._size_of_owner,
        )
        return store

    async def _size_of_owner(self, owner: str) -> int:
        ids = await self.sessions.catalogue.read(partial(ids_of_owner, owner=owner or None))
        return await self.sessions.total_size(ids) + await self.attachments.total_size(ids)

    def _follow_deletions(self) -> None:
        for manager in (self.sessions, self.temporary_sessions):
            manager.on_deleted += [
                self.mcp.end_session,
                self.session_folders.remove,
                self.attachments.remove,
            ]

    def _agent_discovery(self) -> AgentDiscoveryService:
        settings = self.settings
        return AgentDiscoveryService(
            settings.agents_path,
            loader=self.tool_loader,
            default_timeout=settings.tool_timeout_seconds,
            catalogue=self.tools,
            agent_chats_path=settings.agent_chats_path,
            stamp=settings.state_path / AGENTS_STAMP,
        )

    def _catalogue(self, functions: Sequence[Callable[..., Any]]) -> ToolCatalogue:
        settings = self.settings
        folder, *packages = build_tool_sources(settings, self.tool_loader)
        sources = [folder, McpSource(self.mcp), *packages]
        if functions:
            from .tools.functions.registered import RegisteredSource  # noqa: PLC0415 - a server has none

            sources.insert(
                0, RegisteredSource(functions, default_timeout=settings.tool_timeout_seconds)
            )
        return ToolCatalogue(sources)

    def _run_registry(self, state: State) -> RunRegistry:
        journal = RunJournal(state)
        registry = RunRegistry(
            journal,
            RunRecovery(journal, self.sessions, self.agent_sessions, self.confirmations),
            RunRequests(self.state, self.signals),
            max_runs=self.settings.max_runs,
            max_queued=self.settings.max_queued_runs,
            share=self.settings.max_caller_share,
        )
        for sessions in (self.sessions, self.agent_sessions):
            sessions.settle_run = registry.others.settle
            sessions.check_run_left = registry.others.check_left
        return registry

    def attachment_sweeper(self) -> AttachmentSweeper:
        """Return what deletes files that no message has any more."""
        return AttachmentSweeper(
            store=self.attachments,
            sessions=self.sessions,
            agent_sessions=self.agent_sessions,
            running=self._running_sessions,
        )

    async def _running_sessions(self) -> set[str]:
        runs = await self.runs.all_runs()
        return {run.session_id for run in runs if run.state in {"running", "waiting", "queued"}}

    def _resume(self, run_id: str) -> None:
        self.unattended_runs.resume(run_id)

    def _summarization(self) -> tuple[SummarizationService, CompactionService]:
        settings = self.settings
        alone = settings.session_storage == "memory"
        shared = None if alone else settings.state_path / "summaries"
        models = SummaryModelManager(self.providers, self.models)
        last_read = LastReadConversations(shared if settings.summarization_enabled else None)
        scheduler = SummaryScheduler(
            sessions=None if alone else settings.sessions_state_path / "summaries",
            memories=shared,
        )
        summaries = SummarizationService(
            writer=SummaryWriter(
                sessions=self.sessions,
                providers=self.providers,
                models=models,
                windows=self.context_window,
                last_read=last_read,
                most_tokens=settings.max_history_tokens,
            ),
            scheduler=scheduler,
            enabled=settings.summarization_enabled,
            interval=settings.summarization_interval_seconds,
        )
        compaction = CompactionService(
            writer=CompactionWriter(
                providers=self.providers, windows=self.context_window, last_read=last_read
            ),
            providers=self.providers,
            models=models,
            scheduler=scheduler,
            interval=settings.summarization_interval_seconds,
            enabled=settings.compaction,
            most_tokens=settings.max_history_tokens,
        )
        return summaries, compaction

    def _agent_runner(self, conversations: Conversations) -> AgentExecutionService:
        settings = self.settings
        return AgentExecutionService(
            max_rounds=settings.max_tool_rounds,
            sessions=self.agent_sessions,
            conversations=conversations,
            execution=self.tool_execution,
            prompts=PromptLoader(
                settings.within_data(settings.planning_prompt_path),
                settings.within_data(settings.execution_prompt_path),
            ),
        )

    def start(self) -> None:
        """Start the background work of a server; users of the library need not."""
        self.sessions.catalogue.watch()
        self.background.spawn(self._reach_sessions(), name="first use of the sessions")
        self.unattended_runs.tend()
        self.summaries.catch_up()
        self.background.spawn(self.mcp.start_eager(), name="start of MCP servers")
        if self.settings.session_storage != "memory":
            self.attachment_sweeper().tend(self._cleaners)
        if self.settings.workspace_enabled:
            self.session_folders.tend(self._cleaners)
            self.background.spawn(self._check_workspaces(), name="check of the sandbox")

    async def _reach_sessions(self) -> None:
        """Use the storage once: a database makes its tables, or logs why it cannot be used."""
        with suppress(StorageError):
            await self.storages["default"].generation()

    def observe(self, version: str) -> None:
        """Start the metrics and traces that the settings ask for, each an extra."""
        if self.settings.metrics:
            from .observability.metrics import Metrics  # noqa: PLC0415

            self.metrics = Metrics(
                runs=self.runs,
                confirmations=self.confirmations,
                version=version,
                folder=metrics_folder(),
            )
            self.runs.observers.append(self.metrics)
            self.providers.on_error = self.metrics.on_provider_error
            self.metrics.start()
        if traces_are_wanted():
            try:
                from .observability.tracing import Tracing  # noqa: PLC0415
            except ImportError as error:
                advice = install_command("telemetry")
                logger.warning("Traces are wanted, and a package is missing: %s: %s", error, advice)
                return
            self._tracing = Tracing(version)
            self.runs.observers.append(self._tracing)

    async def _check_workspaces(self) -> None:
        """Withdraw the tools of workspaces if there is no sandbox for them."""
        problem = await self.sandbox_launcher.problem(self.settings.sandbox)
        if problem is not None:
            reason = f"The tools of workspaces are not offered: {problem}."
            logger.warning("%s", reason)
            self.mcp.withdraw(WORKSPACE, reason)
        elif self.settings.sandbox == "process":
            logger.warning(
                "MOCHI_SANDBOX=process confines nothing: a model's commands can do what you can."
            )

    async def drain(self) -> None:
        """Refuse new turns, and wait until others have ended or wait for a person.

        At most for ``drain_seconds``.
        """
        self.run_control.refuse_new()
        with anyio.move_on_after(self.settings.drain_seconds):
            await self.runs.wait_idle()

    def stop(self) -> None:
        """End turns and summaries and refuse new ones: the server is stopping."""
        self.unattended_runs.stop()
        self.run_control.stop_all()
        self.confirmation_feed.close()
        self.mcp_feed.close()
        self.pulls.stop()
        self.summaries.stop()
        self.compaction.stop()

    async def check_ready(self) -> None:
        """Make sure that turns can begin.

        Raises:
            ShuttingDown: the server is stopping.
            StorageError: the storage of the sessions does not answer.
        """
        if self.runs.refuses_runs:
            raise ShuttingDown
        await self.storages["default"].generation()

    async def aclose(self) -> None:
        """End turns, which keep what they have, finish background work and close all parts."""
        closers = [self.state.aclose, self._state_of_runs.aclose]
        closers += [storage.aclose for storage in self.storages.values()]
        managers = [self.sessions, self.agent_sessions, self.temporary_sessions]
        closers += [manager.catalogue.aclose for manager in managers]
        closers += [self.search.aclose, self.providers.aclose, self.tool_loader.aclose]
        closers += [self.agents.aclose, self.tools.aclose]
        closers += [self.signals.aclose, self.confirmations.aclose]
        if self.metrics is not None:
            self.metrics.stop()
        if self._tracing is not None:
            closers.append(self._tracing.aclose)
        async with AsyncExitStack() as closing:  # the last one first, and all whatever one raises
            for close in closers:
                closing.push_async_callback(close)
            self.stop()
            self._cleaners.cancel()
            await self.unattended_runs.drain(self.settings.shutdown_seconds)
            await self.runs.wait_closed(self.settings.shutdown_seconds)
            await self.summaries.aclose()
            await self.compaction.aclose()
            await self.pulls.aclose()
            await self._cleaners.drain(DRAIN_SECONDS)
            await self.background.drain(DRAIN_SECONDS)
