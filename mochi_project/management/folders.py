"""Loads the folders of tools and agents once, without a server, for checks and commands.

The functions start an event loop, so they cannot be called within one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING

from mochi_server.backends import build_tool_loader
from mochi_server.config import MochiServerSettings
from mochi_server.tools.base import Problem
from mochi_server.tools.folder.snapshot import check_folder
from mochi_server.tools.loading import FolderDescription, FolderSpec, ToolLoader

if TYPE_CHECKING:
    from mochi_server.agents import AgentDefinition

    AgentsAndProblems = tuple[Mapping[str, AgentDefinition], Sequence[Problem]]


def tool_loader(mochi: MochiServerSettings) -> AbstractAsyncContextManager[ToolLoader]:
    """Build what loads folders of tools; its context closes it."""
    return aclosing(build_tool_loader(mochi))


def load_tools(mochi: MochiServerSettings) -> FolderDescription:
    """Describe the folder of tools, as a server does."""
    if check_folder(mochi.tools_path).is_empty:
        return FolderDescription(folder=str(mochi.tools_path))
    return asyncio.run(_load_tools(mochi))


async def _load_tools(mochi: MochiServerSettings) -> FolderDescription:
    async with tool_loader(mochi) as loader:
        [folder] = await loader.load([FolderSpec(path=mochi.tools_path)])
        return folder.description


def load_agents(mochi: MochiServerSettings) -> AgentsAndProblems:
    """Return all agents, whose tools are closed already, and their problems."""
    return asyncio.run(_load_agents(mochi))


async def _load_agents(mochi: MochiServerSettings) -> AgentsAndProblems:
    from mochi_server.agents import AgentDiscoveryService  # noqa: PLC0415 - not to load tools

    async with tool_loader(mochi) as loader:
        discovery = AgentDiscoveryService(
            mochi.agents_path,
            loader=loader,
            default_timeout=mochi.tool_timeout_seconds,
            agent_chats_path=mochi.agent_chats_path,
            quiet=True,
        )
        async with aclosing(discovery):
            return await discovery.agents(), discovery.problems()
