"""What the chat gets to know of agents: the tool that calls those which a session enables."""

from __future__ import annotations

from ..chat.agent_offer import AgentOffer
from ..sessions.types import AgentSettings
from ..tools.base import Tool
from .definition import AGENT_TOOL, SOURCE
from .discovery import AgentDiscoveryService
from .tool_factory import SOURCE as TOOL_SOURCE
from .tool_factory import AgentRunner, agent_tool


class AgentSource:
    """Offers agents to conversations; :class:`..chat.agent_offer.Agents` is what it is for them."""

    def __init__(self, discovery: AgentDiscoveryService, runner: AgentRunner) -> None:
        self._discovery = discovery
        self._runner = runner

    async def offer(self, settings: AgentSettings | None) -> AgentOffer:
        """What the settings enable, in their order; nothing is read where they enable nothing."""
        wanted = list(dict.fromkeys(settings.enabled_agents)) if settings is not None else []
        if not wanted:
            return AgentOffer()
        found = await self._discovery.agents()
        known = [found[name] for name in wanted if name in found]
        return AgentOffer(
            tool=agent_tool(known, discovery=self._discovery, runner=self._runner),
            enabled=[agent.name for agent in known if agent.valid],
            unknown=[name for name in wanted if name not in found],
            invalid={
                agent.name: agent.error_message
                for agent in known
                if agent.error_message is not None
            },
        )

    async def tool_of(self, source: str, name: str) -> Tool | None:
        """An agent's own tool, or the one that calls agents; null where there is none."""
        is_own = source.startswith(SOURCE)
        if not is_own and (source, name) != (TOOL_SOURCE, AGENT_TOOL):
            return None
        found = await self._discovery.agents()
        if is_own:
            agent = found.get(source.removeprefix(SOURCE))
            return agent.tools.get(name) if agent is not None else None
        return agent_tool(list(found.values()), discovery=self._discovery, runner=self._runner)
