"""Finds the agents once, apart from any server: for checks and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mochi_server.agents import AgentDefinition, AgentDiscoveryService
from mochi_server.backends import build_tool_loader
from mochi_server.config import MochiServerSettings
from mochi_server.tools.base import Problem

Found = tuple[Mapping[str, AgentDefinition], Sequence[Problem]]


def find_agents(mochi: MochiServerSettings) -> Found:
    """All agents, and what is wrong with them; not within an event loop. Their tools are closed."""
    return asyncio.run(_find(mochi))


async def _find(mochi: MochiServerSettings) -> Found:
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
