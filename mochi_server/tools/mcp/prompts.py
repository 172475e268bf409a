"""The prompts of MCP servers: system prompts beside those of the user's files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.caller import require
from ...errors import PromptArgumentsInvalid, PromptNotFound
from ..functions.results import clean
from .descriptions import offered_name, taken_names
from .prompt_descriptions import McpPromptDescription
from .requests import refusals, request_server

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp_types import GetPromptResult

    from .servers.registry import McpServers
    from .servers.server import McpServer

_OFFERED = re.compile(r"[A-Za-z0-9_-]+__[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpPrompt:
    """A prompt of a server under the name that sessions use."""

    name: str
    """``{prefix}__{prompt}``."""
    described: McpPromptDescription
    server: McpServer

    @property
    def server_name(self) -> str:
        return self.server.config.name


def is_mcp_prompt(name: str) -> bool:
    """Return whether a system prompt's name can be that of a server's prompt; no file has it."""
    return _OFFERED.fullmatch(name) is not None


class McpPrompts:
    """The prompts of all servers, as far as they are known."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def list(self) -> Sequence[McpPrompt]:
        """Return the prompts; nothing waits for a server. Of two with one name, the first."""
        return [*self._named(await self._servers.refresh()).values()]

    @staticmethod
    def _named(servers: Mapping[str, McpServer]) -> dict[str, McpPrompt]:
        prompts: dict[str, McpPrompt] = {}
        for server in servers.values():
            listed = server.facts.prompts if server.facts is not None else ()
            taken = taken_names(each.name for each in listed)
            for described in listed:
                name = offered_name(
                    server.config.prefix, described.name, is_taken=described.name in taken
                )
                prompts.setdefault(name, McpPrompt(name=name, described=described, server=server))
        return prompts

    async def get(self, name: str) -> McpPrompt:
        """Return a prompt; wait a while for its server if that was never started before.

        Raises:
            PromptNotFound: there is none of this name.
        """
        servers = await self._servers.refresh()
        for server in servers.values():
            if name.startswith(f"{server.config.prefix}__"):
                await server.wait_known()
        prompt = self._named(servers).get(name)
        if prompt is None:
            raise PromptNotFound(filename=name)
        return prompt

    async def text(self, prompt: McpPrompt, arguments: Mapping[str, str]) -> str:
        """Let the server fill in a prompt, and return the texts of its messages.

        Raises:
            PromptArgumentsInvalid: required arguments are missing, or it has no such arguments,
                or the server does not accept them.
            McpServerFailed: the server does not answer, or its answer is an error.
            Forbidden: the caller lacks the right ``tools``.
        """
        require("tools")
        _check_arguments(prompt, arguments)

        async def get(client: Client) -> GetPromptResult:
            with refusals(prompt.server, lambda text: _invalid(prompt, f"its server says: {text}")):
                return await client.get_prompt(prompt.described.name, {**arguments})

        result = await request_server(prompt.server, get)
        from .results import shown_block  # noqa: PLC0415 - with the SDK

        texts = (shown_block(message.content) for message in result.messages)
        return clean("\n\n".join(text for text in texts if text.strip()))


def _check_arguments(prompt: McpPrompt, arguments: Mapping[str, str]) -> None:
    known = {each.name: each.required for each in prompt.described.arguments}
    if missing := [name for name, required in known.items() if required and name not in arguments]:
        raise _invalid(prompt, f"it needs {', '.join(map(repr, missing))}")
    if unknown := [name for name in arguments if name not in known]:
        names = ", ".join(map(repr, known)) or "none"
        raise _invalid(prompt, f"it has no {', '.join(map(repr, unknown))}; its arguments: {names}")


def _invalid(prompt: McpPrompt, reason: str) -> PromptArgumentsInvalid:
    return PromptArgumentsInvalid(filename=prompt.name, reason=reason)
