"""The status of a session: its model, window, tools, agents and summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import JSONObject, MochiError
from ..protocol.completions import ModelInfo
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService, room_for_tools
from ..services.described_tools import describe
from ..services.history import system_of
from ..services.models.resolver import ModelResolver, ModelSetup
from ..services.requests import RequestExtras
from ..sessions import SessionManager
from ..sessions.types import ContextWindowConfig, SessionMetadata, ToolSettings
from ..tools.catalogue import ToolCatalogue
from .find_tools import are_searched
from .runs.registry import RunRegistry
from .session_agents import SessionAgents


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusService:
    """Reports the status of sessions, and what they name that does not exist."""

    sessions: SessionManager
    models: ModelResolver
    providers: ProviderRegistry
    windows: DynamicContextWindowService
    runs: RunRegistry
    tools: ToolCatalogue
    agents: SessionAgents

    async def of(self, session_id: str) -> JSONObject:
        """Return what ``GET /sessions/{id}/status`` answers (docs/reference/http-api.md)."""
        session = await self.sessions.get(session_id)
        metadata = session.metadata
        setup = await self._setup(metadata)
        tools = setup.tool_settings or ToolSettings()
        selection = await self.tools.select(tools)
        missing = self._missing(selection.unknown)
        active = {**setup.tools, **selection.tools}
        agents = await self.agents.offer(setup.agent_settings)
        config = metadata.context_window_config or ContextWindowConfig()
        summary = metadata.summary
        info = await self._info(setup.model)
        schemas = [tool.schema() for tool in (*active.values(), agents.tool) if tool is not None]
        tool_tokens = self._tool_tokens(schemas, setup, info)
        room = self._room_for_tools(setup.model, info, config)
        return {
            "session_id": session_id,
            "model": metadata.model,
            "provider_model": setup.model or None,
            "message_count": len(session.messages),
            "turn_running": self.runs.is_running(session_id),
            "context_window": self._window(config, info),
            "tools_enabled": bool(active),
            "active_tools": list(active),
            "tool_tokens": tool_tokens,
            "tools_are_searched": are_searched(schemas, tool_tokens, room),
            "unknown_tools": [name for name in selection.unknown if name not in missing],
            "unknown_tool_group": selection.unknown_group,
            "missing_tools": missing,
            "execution_policy": tools.policy_in_force.value,
            "tool_mode": "prompted" if tools.is_prompted else "native",
            "agents_enabled": bool(agents.enabled),
            "enabled_agents": list(agents.enabled),
            "unknown_agents": list(agents.unknown),
            "invalid_agents": dict(agents.invalid),
            "system_prompt_file": (system_of(session) or {}).get("source_file"),
            "summary": summary.model_dump(mode="json") if summary else None,
            "summary_model": metadata.summary_model,
        }

    def _window(self, config: ContextWindowConfig, info: ModelInfo | None) -> JSONObject:
        return {
            "dynamic_enabled": self.windows.enabled and config.dynamic_enabled,
            "current_window": config.current_window,
            "model_max_context": None if info is None else info.context_length,
            "last_adjustment_reason": config.last_adjustment,
            "manual_override": config.manual_override,
        }

    def _missing(self, unknown: Sequence[str]) -> JSONObject:
        """Return why tools that nobody has are not there, as far as a problem with them says it."""
        return {
            problem.tool: problem.reason
            for problem in self.tools.problems
            if problem.tool is not None and problem.tool in unknown
        }

    async def _setup(self, metadata: SessionMetadata) -> ModelSetup:
        """Return what the next turn uses; of a preset or agent that cannot be used, no model."""
        try:
            setup = await self.models.resolve(metadata.model)
        except MochiError:
            setup = ModelSetup(model="")
        return setup.within(metadata)

    async def _info(self, model: str) -> ModelInfo | None:
        try:
            return await self.providers.show_model(model)
        except MochiError:
            return None

    def _tool_tokens(
        self, schemas: Sequence[JSONObject], setup: ModelSetup, info: ModelInfo | None
    ) -> int:
        """Estimate the tokens of all tools in a request."""
        settings = setup.tool_settings or ToolSettings()
        is_unable = info is not None and not info.can_call_tools
        is_prompted = bool(schemas) and (settings.is_prompted or is_unable)
        described = describe(schemas, must_call=False) if is_prompted else None
        return RequestExtras(tools=schemas).estimate(self.windows.ratio(setup.model), described)

    def _room_for_tools(
        self, model: str, info: ModelInfo | None, config: ContextWindowConfig
    ) -> int | None:
        """Return the tokens that tools may take where all are offered; None: not known."""
        if info is None:
            return None
        provider, _ = self.providers.resolve(model)
        ours = provider.capabilities.context_size
        size = self.windows.largest(model, info, config, ours=ours)
        return None if size is None else room_for_tools(size)
