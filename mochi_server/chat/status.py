"""The status of a session: its model, window, tools, agents and summary."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import JSONObject, MochiError
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService
from ..services.history import system_of
from ..services.models.resolver import ModelResolver, ModelSetup
from ..sessions import SessionManager
from ..sessions.types import ContextWindowConfig, SessionMetadata, ToolSettings
from ..tools.catalogue import ToolCatalogue
from .runs.registry import RunRegistry
from .tool_calls import SessionAgents


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
        missing: JSONObject = {
            problem.tool: problem.reason
            for problem in self.tools.problems
            if problem.tool is not None and problem.tool in selection.unknown
        }
        active = {**setup.tools, **selection.tools}
        agents = await self.agents.offer(setup.agent_settings)
        config = metadata.context_window_config or ContextWindowConfig()
        system = system_of(session)
        summary = metadata.summary
        return {
            "session_id": session_id,
            "model": metadata.model,
            "provider_model": setup.model or None,
            "message_count": len(session.messages),
            "turn_running": self.runs.is_running(session_id),
            "context_window": {
                "dynamic_enabled": self.windows.enabled and config.dynamic_enabled,
                "current_window": config.current_window,
                "model_max_context": await self._context_length(setup.model),
                "last_adjustment_reason": config.last_adjustment,
                "manual_override": config.manual_override,
            },
            "tools_enabled": bool(active),
            "active_tools": list(active),
            "unknown_tools": [name for name in selection.unknown if name not in missing],
            "unknown_tool_group": selection.unknown_group,
            "missing_tools": missing,
            "execution_policy": tools.policy_in_force.value,
            "agents_enabled": bool(agents.enabled),
            "enabled_agents": list(agents.enabled),
            "unknown_agents": list(agents.unknown),
            "invalid_agents": dict(agents.invalid),
            "system_prompt_file": system.get("source_file") if system else None,
            "summary": summary.model_dump(mode="json") if summary else None,
            "summary_model": metadata.summary_model,
        }

    async def _setup(self, metadata: SessionMetadata) -> ModelSetup:
        """Return what the next turn uses; of a preset or agent that cannot be used, no model."""
        try:
            setup = await self.models.resolve(metadata.model)
        except MochiError:
            setup = ModelSetup(model="")
        return setup.within(metadata)

    async def _context_length(self, model: str) -> int | None:
        try:
            return (await self.providers.show_model(model)).context_length
        except MochiError:
            return None
