"""Loads the agents once without a server, for checks and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mochi_server.agents import AgentDefinition, AgentDiscoveryService
from mochi_server.backends import build_tool_loader
from mochi_server.config import MochiServerSettings
from mochi_server.tools.base import Problem

AgentsAndProblems = tuple[Mapping[str, AgentDefinition], Sequence[Problem]]


def find_agents(mochi: MochiServerSettings) -> AgentsAndProblems:
    """Return all agents, whose tools are closed already, and their problems.

    It starts an event loop, so it cannot be called within one.
    """
    return asyncio.run(_find(mochi))


async def _find(mochi: MochiServerSettings) -> AgentsAndProblems:
    loader = build_tool_loader(mochi)
    discovery = AgentDiscoveryService(
        mochi.agents_path,
        loader=loader,
        default_timeout=mochi.tool_timeout_seconds,
        agent_chats_path=mochi.agent_chats_path,
        quiet=True,
    )
    try:
        return await discovery.agents(), discovery.problems()
    finally:
        await discovery.aclose()
        await loader.aclose()
