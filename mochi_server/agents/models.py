"""Agents as models: conversations whose model is ``agent/NAME``."""

from __future__ import annotations

from collections.abc import Sequence

from ..services.models.resolver import ModelSetup
from ..sessions.types import AgentSettings
from .definition import AgentDefinition
from .discovery import AgentDiscoveryService


class AgentModels:
    """What turns use whose model is an agent; a ``ModelSource``."""

    def __init__(self, discovery: AgentDiscoveryService, *, max_rounds: int) -> None:
        """Keep the parts; ``max_rounds`` is the limit of an agent's rounds of tool calls."""
        self._discovery = discovery
        self._max_rounds = max_rounds

    async def setup(self, name: str, *, wait: bool) -> ModelSetup:
        return self._setup(await self._discovery.get(name, wait=wait))

    async def setups(self) -> Sequence[ModelSetup]:
        agents = (await self._discovery.agents()).values()
        return [self._setup(agent) for agent in agents if agent.valid]

    def _setup(self, agent: AgentDefinition) -> ModelSetup:
        return ModelSetup(
            kind="agent",
            name=agent.name,
            description=agent.description,
            model=agent.model or "",
            system_prompt=agent.system_prompt,
            agent_settings=AgentSettings(enabled_agents=[*agent.agents]) if agent.agents else None,
            tools=agent.tools,
            max_tool_rounds=self._max_rounds,
        )
