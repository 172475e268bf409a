"""``manage.py reload_agents``: look at the agents, and make running servers load them again."""

from __future__ import annotations

from mochi_project.management.base import FolderContents, ReloadCommand
from mochi_project.management.folders import load_agents
from mochi_server.agents import AgentDefinition
from mochi_server.agents.folder import RELOAD_STAMP
from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject


class Command(ReloadCommand):
    """Finds the agents, says what they are, and tells running servers."""

    help = (
        "Finds the agents, prints them and their problems, and makes every running server on this "
        "data folder load them again."
    )
    noun = "agents"
    columns = ("NAME", "VALID", "MODEL", "TOOLS", "AGENTS")
    stamp = RELOAD_STAMP

    def find(self, mochi: MochiServerSettings) -> FolderContents:
        agents, problems = load_agents(mochi)
        return FolderContents(
            folder=str(mochi.agents_path),
            items=[item(agent) for agent in agents.values()],
            rows=[row(agent) for agent in agents.values()],
            problems=problems,
        )


def item(agent: AgentDefinition) -> JSONObject:
    return {
        "name": agent.name,
        "description": agent.description,
        "valid": agent.valid,
        "error_message": agent.error_message,
        "model": agent.model,
        "tools": [*agent.tools],
        "agents": [*agent.agents],
    }


def row(agent: AgentDefinition) -> list[object]:
    tools, agents = ", ".join(agent.tools), ", ".join(agent.agents)
    return [agent.name, agent.valid, agent.model, tools or None, agents or None]
