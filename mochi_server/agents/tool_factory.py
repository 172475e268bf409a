"""``AgentTool``, which calls agents, and ``AgentSource``, which makes it for each session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..chat.session_agents import AgentOffer
from ..chat.tool_calls.context import CallContext
from ..errors import JSONObject, MochiError
from ..protocol.events import Event
from ..sessions.storage.base import SESSION_ID
from ..sessions.types import AgentSettings
from ..tools.base import InvalidArguments, Tool, ToolContext, ToolFailed, ToolOutput
from .definition import SOURCE_PREFIX, AgentDefinition
from .discovery import AGENT_TOOL, AgentDiscoveryService
from .execution import AgentExecutionService

AGENT_TOOL_SOURCE = "agents"

MAX_DEPTH = 3
"""Levels of agents: the conversation calls one, which calls one, which calls one."""

PARAMETERS = {
    "agent": "The name of the agent to invoke.",
    "instruction": "A clear, detailed instruction.",
    "session_id": "Optional session ID to continue a previous agent conversation.",
}
_NONE = frozenset({"", "none", "null"})
"""Words that models write if they have no session ID."""


class AgentTool(Tool):
    """Calls one of several agents. Each call uses the agent as it is then."""

    name = AGENT_TOOL
    source = AGENT_TOOL_SOURCE
    destructive = False  # about the agent's own calls a person is asked one by one
    sequential = False
    is_resumable = True
    timeout = None  # its model calls and tools have theirs

    def __init__(self, agents: Sequence[AgentDefinition], source: AgentSource) -> None:
        self._names = [agent.name for agent in agents]
        self._source = source
        self.description = describe(agents)
        self.parameters = parameters_of(self._names)

    async def validate(self, arguments: JSONObject) -> JSONObject:
        """Return all three arguments; ``session_id`` is null for a new session."""
        unknown = [name for name in arguments if name not in PARAMETERS]
        if unknown:
            raise InvalidArguments(f"there is no argument {unknown[0]!r}.")
        return {
            "agent": self._agent(arguments.get("agent")),
            "instruction": _instruction(arguments.get("instruction")),
            "session_id": _session_id(arguments.get("session_id")),
        }

    def _agent(self, value: object) -> str:
        name = value.strip() if isinstance(value, str) else value
        if not name and len(self._names) == 1:  # small models leave it out: which one is clear
            return self._names[0]
        if not isinstance(name, str) or name not in self._names:
            raise InvalidArguments(f"there is no agent {name!r}; choose {_choice(self._names)}.")
        return name

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolOutput, None]:
        """Run the agent; closing the generator ends it."""
        if not isinstance(context, CallContext):
            raise ToolFailed("an agent can only be called within a conversation.")
        if context.depth >= MAX_DEPTH:
            raise ToolFailed(
                f"no more than {MAX_DEPTH} agents can call each other; do it yourself."
            )
        definition = await self._definition(str(arguments["agent"]))
        tools = [*definition.tools.values(), *await self._inner_tool(definition, context.depth + 1)]
        session_id = arguments["session_id"]
        running = self._source.runner.run(
            definition,
            tools,
            str(arguments["instruction"]),
            session_id if isinstance(session_id, str) else None,
            context,
        )
        async with aclosing(running) as events:
            async for event in events:
                yield event

    async def _definition(self, name: str) -> AgentDefinition:
        try:
            return await self._source.discovery.get(name, wait=True)
        except MochiError as error:
            raise ToolFailed(error.message) from error

    async def _inner_tool(self, definition: AgentDefinition, depth: int) -> list[Tool]:
        if depth >= MAX_DEPTH or not definition.agents:
            return []
        known = await self._source.discovery.agents()
        agents = [known[name] for name in definition.agents if name in known]
        tool = self._source.tool(agents)
        return [tool] if tool is not None else []


def describe(agents: Sequence[AgentDefinition]) -> str:
    lines = "\n".join(f"  - {agent.name}: {agent.description}" for agent in agents)
    arguments = "\n".join(f"    {name} (str): {text}" for name, text in PARAMETERS.items())
    return (
        f"Delegate a task to a specialised agent.\n\nAvailable agents:\n{lines}\n\n"
        f"Args:\n{arguments}\n\n"
        "Returns:\n    str: The agent's response including its Session ID."
    )


def parameters_of(names: Sequence[str]) -> JSONObject:
    properties: dict[str, JSONObject] = {
        name: {"type": "string", "description": text} for name, text in PARAMETERS.items()
    }
    properties["agent"]["enum"] = [*names]
    return {
        "type": "object",
        "properties": {**properties},
        "required": ["agent", "instruction"],
    }


def _instruction(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArguments("'instruction' must be a text that says what the agent is to do.")
    return value


def _session_id(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else value
    if text is None or (isinstance(text, str) and text.lower() in _NONE):
        return None
    if not isinstance(text, str) or SESSION_ID.fullmatch(text) is None:
        raise InvalidArguments(
            f"{value!r} is no session ID. Use the one at the top of an agent's earlier answer, or "
            "leave 'session_id' out to begin a new conversation."
        )
    return text


def _choice(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}" if len(names) > 1 else names[0]


class AgentSource:
    """Offers agents to conversations, as ``SessionAgents`` of the chat."""

    def __init__(self, discovery: AgentDiscoveryService, runner: AgentExecutionService) -> None:
        self.discovery = discovery
        self.runner = runner

    def tool(self, agents: Sequence[AgentDefinition]) -> AgentTool | None:
        """Return the tool for the agents that can be used; None if none can."""
        valid = [agent for agent in agents if agent.valid]
        return AgentTool(valid, self) if valid else None

    async def offer(self, settings: AgentSettings | None) -> AgentOffer:
        """Return what the settings enable, in their order; read nothing if that is nothing."""
        names = list(dict.fromkeys(settings.enabled_agents)) if settings is not None else []
        if not names:
            return AgentOffer()
        agents = await self.discovery.agents()
        known = [agents[name] for name in names if name in agents]
        return AgentOffer(
            tool=self.tool(known),
            enabled=[agent.name for agent in known if agent.valid],
            unknown=[name for name in names if name not in agents],
            invalid={
                agent.name: agent.error_message
                for agent in known
                if agent.error_message is not None
            },
        )

    async def tool_of(self, source: str, name: str) -> Tool | None:
        """Find an agent's own tool, or the tool that calls agents."""
        is_own = source.startswith(SOURCE_PREFIX)
        if not is_own and (source, name) != (AGENT_TOOL_SOURCE, AGENT_TOOL):
            return None
        agents = await self.discovery.agents()
        if is_own:
            agent = agents.get(source.removeprefix(SOURCE_PREFIX))
            return agent.tools.get(name) if agent is not None else None
        return self.tool(list(agents.values()))
