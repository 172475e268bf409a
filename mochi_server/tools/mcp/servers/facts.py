"""What an MCP server says of itself, its tools and its prompts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from ....core.logs import one_line
from ..descriptions import (
    MAX_TOOLS,
    McpToolDescription,
    Unusable,
    offered_name,
    read_tool,
    taken_names,
)
from ..failures import reason_of
from ..prompt_descriptions import MAX_PROMPTS, McpPromptDescription, describe_prompt
from ..secret_values import SecretValues

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp_types import Tool

logger = logging.getLogger(__name__)

PROMPTS_SECONDS = 5.0
"""Longest wait for the prompts of a server, whose tools are listed already."""
MAX_PAGES = 100


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself, its tools and its prompts."""

    tools: Sequence[McpToolDescription] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Why a tool cannot be used, by the server's name for it."""
    by_name: Mapping[str, McpToolDescription] = field(init=False, compare=False, repr=False)
    """The first of each name."""
    _taken: frozenset[str] = field(init=False, compare=False, repr=False)
    prompts: Sequence[McpPromptDescription] = ()
    protocol_version: str | None = None
    server_info: Mapping[str, str] | None = None
    """``{"name", "version"}``, if it says them."""
    latency: float | None = field(default=None, compare=False)
    """Seconds that the last request of the list of tools took; None if there was none."""

    def __post_init__(self) -> None:
        by_name = {tool.name: tool for tool in reversed(self.tools)}
        object.__setattr__(self, "by_name", by_name)
        object.__setattr__(self, "_taken", taken_names(by_name))

    def offered_name(self, prefix: str, tool: str) -> str:
        """Return the name by which models call a tool of the server's own name."""
        return offered_name(prefix, tool, is_taken=tool in self._taken)

    def approval_key(self, prefix: str, tool: str) -> str:
        """Return the name by which an approval is kept: what rules and models see of its name."""
        return self.offered_name(prefix, tool).removeprefix(f"{prefix}__")


async def read_facts(client: Client, server: str, secrets: SecretValues) -> ServerFacts:
    """Ask a server what it is and has; its prompts are none if they cannot be listed."""
    listed, latency = await _list_tools(client)
    tools: list[McpToolDescription] = []
    unusable: dict[str, str] = {}
    for tool in listed[:MAX_TOOLS]:
        await asyncio.sleep(0)  # each takes a while, and there may be a thousand
        try:
            tools.append(read_tool(tool))
        except Unusable as error:
            unusable[one_line(tool.name)] = str(error)
    for tool in listed[MAX_TOOLS:]:
        left_out = f"it and those after it are left out, as there are {MAX_TOOLS:,} others"
        unusable[one_line(tool.name)] = left_out
    info = client.server_info
    return ServerFacts(
        tools=tools,
        unusable=unusable,
        prompts=await _list_prompts(client, server, secrets),
        protocol_version=client.protocol_version,
        server_info=None
        if info is None
        else {"name": one_line(info.name), "version": one_line(info.version)},
        latency=latency,
    )


async def _list_tools(client: Client) -> tuple[list[Tool], float | None]:
    """Return the tools, at most one too many, and the seconds that the last request took."""
    tools: list[Tool] = []
    latency = cursor = None
    for _ in range(MAX_PAGES if client.server_capabilities.tools is not None else 0):
        began = time.monotonic()
        page = await client.list_tools(cursor=cursor)
        latency = time.monotonic() - began
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > MAX_TOOLS:
            break
    return tools[: MAX_TOOLS + 1], latency


async def _list_prompts(
    client: Client, server: str, secrets: SecretValues
) -> list[McpPromptDescription]:
    """Return the prompts; none if they cannot be listed, which the tools must not feel."""
    prompts: list[McpPromptDescription] = []
    cursor: str | None = None
    try:
        with anyio.fail_after(PROMPTS_SECONDS):
            for _ in range(MAX_PAGES if client.server_capabilities.prompts is not None else 0):
                page = await client.list_prompts(cursor=cursor)
                prompts += filter(None, map(describe_prompt, page.prompts))
                cursor = page.next_cursor
                if not cursor or len(prompts) >= MAX_PROMPTS:
                    break
    except Exception as error:  # noqa: BLE001 - whatever the SDK makes of it
        reason = one_line(secrets.redacted(reason_of(error)))
        logger.info("The prompts of MCP server %s: %s", server, reason)
    return prompts[:MAX_PROMPTS]
