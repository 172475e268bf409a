"""Which tools MCP clients are offered, and how they are described to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import mcp_types as types

from ..agents.definition import AgentDefinition
from ..errors import JSONObject
from ..runtime import Runtime
from ..services.models.resolver import ModelSetup
from ..sessions.types import AgentSettings, ToolSettings
from ..tools.base import Tool
from ..tools.mcp.source import SOURCE_PREFIX
from ..tools.mcp.transports.sandboxed import WORKSPACE
from .ask import ASK_TOOL

AGENT_PREFIX = "agent_"

AGENT_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "instruction": {"type": "string", "description": "A clear, detailed instruction."},
        "session_id": {
            "type": "string",
            "description": "Continues an earlier conversation with this agent; it is at the top of "
            "the agent's answers.",
        },
    },
    "required": ["instruction"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedCall:
    """What a client's call means here."""

    tool: Tool
    arguments: JSONObject
    model: str | None
    """Full name of the model of the agent that is called."""
    is_agent: bool


class ToolOffer:
    """The tools that clients are offered, as they are at each request."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._patterns = runtime.settings.mcp_offered_tools

    def is_offered(self, tool: Tool) -> bool:
        """Return whether a tool may be called directly: those of workspaces need a session."""
        return self.has(tool.name) and tool.source != f"{SOURCE_PREFIX}{WORKSPACE}"

    def has(self, name: str) -> bool:
        """Return whether a tool of this name may be offered."""
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    async def list(self) -> list[types.Tool]:
        agents = (await self._runtime.agents.agents()).values()
        tools = (await self._runtime.tools.inventory()).tools
        offered = [
            ASK_TOOL,
            *(_described_agent(agent) for agent in agents if agent.valid),
            *(_described(tool) for tool in tools.values() if self.is_offered(tool)),
        ]
        # The first of a name is the one that is called.
        by_name = {tool.name: tool for tool in reversed(offered) if self.has(tool.name)}
        return [*reversed(by_name.values())]

    async def find(self, name: str, arguments: JSONObject) -> OfferedCall | None:
        """Return what a call of an offered tool or agent means; None if there is none."""
        if not self.has(name):
            return None
        if name.startswith(AGENT_PREFIX):
            agent = name.removeprefix(AGENT_PREFIX)
            offer = await self._runtime.agent_source.offer(AgentSettings(enabled_agents=[agent]))
            if offer.tool is not None:
                definition = await self._runtime.agents.get(agent)
                return OfferedCall(
                    tool=offer.tool,
                    arguments={**arguments, "agent": agent},
                    model=definition.model,
                    is_agent=True,
                )
        tool = (await self._runtime.tools.select(ToolSettings(tools=[name]))).tools.get(name)
        if tool is None or not self.is_offered(tool):
            return None
        return OfferedCall(tool=tool, arguments=arguments, model="", is_agent=False)

    async def of_session(self, setup: ModelSetup) -> Sequence[str] | None:
        """Return the names of the tools of a turn that are offered; None if all are."""
        if "*" in self._patterns:
            return None
        tools = (await self._runtime.tools.select(setup.tool_settings)).tools
        own = setup.tools if self.has(f"{AGENT_PREFIX}{setup.name}") else {}
        names = [*own, *(name for name in tools if self.has(name) and name not in own)]
        enabled = (await self._runtime.agent_source.offer(setup.agent_settings)).enabled
        if enabled and all(self.has(f"{AGENT_PREFIX}{name}") for name in enabled):
            names.append("agent")
        return names


def _described_agent(agent: AgentDefinition) -> types.Tool:
    return types.Tool(
        name=f"{AGENT_PREFIX}{agent.name}",
        title=agent.name,
        description=agent.description,
        input_schema=AGENT_SCHEMA,
    )


def _described(tool: Tool) -> types.Tool:
    hints = None
    if tool.destructive is not None:  # else the defaults of the protocol say the same
        hints = types.ToolAnnotations(destructive_hint=tool.destructive)
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=hints,
    )
