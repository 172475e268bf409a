"""The tools of MCP servers, as tools of conversations."""

from __future__ import annotations

import fnmatch
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from ...core.aio import merge
from ...errors import JSONObject
from ..base import Problem, Tool, ToolBegun, ToolContext, ToolFailed, ToolSource, ToolStep
from ..functions.schema_arguments import SchemaArguments
from ..progress_events import ProgressReports
from .approvals import Approval
from .descriptions import MAX_OFFERED, McpToolDescription, is_read_only, takes_other_arguments
from .input import RunningCall
from .servers.facts import ServerFacts
from .servers.registry import McpServers
from .servers.server import PATIENCE_SECONDS, McpServer

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp_types import CallToolResult

SHOWN_DESCRIPTION = 2_000
SHOWN_NAMES = 50
"""Tools that one problem names."""
CHANGED = "The tool {tool!r} has changed since a person approved it. Now its server says: {text}"
CHANGED_NOW = (
    "The tool {tool!r} has changed since a person approved it, so it was not called. Call it again:"
    " a person will be asked."
)
DIFFERS = (
    "The server of this session describes the tool {tool!r} otherwise than it was listed, so it was"
    " not called. The list is read again: call it again."
)

SOURCE_PREFIX = "mcp:"
"""``Tool.source`` of an MCP tool begins with this; the name of its server follows."""


class McpTool(Tool):
    """A tool of an MCP server; it goes on to mean that server when the configuration changes."""

    def __init__(
        self,
        described: McpToolDescription,
        facts: ServerFacts,
        server: McpServer,
        servers: McpServers,
    ) -> None:
        config = server.config
        self.described = described
        self.server_name = config.name
        self.name = facts.offered_name(config.prefix, described.name)
        self.key = facts.approval_key(config.prefix, described.name)
        """The name by which its approval is kept."""
        self.description = described.description or described.title or ""
        self.parameters = described.parameters
        self.source = f"{SOURCE_PREFIX}{config.name}"
        self.is_trusted = config.options.trusted
        self.sequential = False
        self.timeout = server.timeout
        self._server = server
        self._servers = servers

    @property
    def _current(self) -> McpToolDescription:
        """The tool as its server describes it now, if it still has it."""
        return self._described_by(self._server) or self.described

    def _described_by(self, server: McpServer) -> McpToolDescription | None:
        return None if server.facts is None else server.facts.by_name.get(self.described.name)

    @property
    def destructive(self) -> bool | None:  # type: ignore[override]
        """What a trusted server says of it now."""
        read_only = is_read_only(self._current) if self.is_trusted else None
        return None if read_only is None else not read_only

    @property
    def approval(self) -> Approval:
        """Whether a person has approved the tool as it is described now."""
        return self._servers.approved.approval_of(self.server_name, self.key, self._current.digest)

    @property
    def needs_approval(self) -> str | None:
        if self.approval != "changed":
            return None
        text = self._current.description[:SHOWN_DESCRIPTION]
        return CHANGED.format(tool=self.name, text=text)

    @property
    def fingerprint(self) -> str:
        return self._current.digest

    async def approve(self, fingerprint: str) -> None:
        await self._servers.approved.add(self.server_name, {self.key: fingerprint})

    @cached_property
    def _arguments(self) -> SchemaArguments:
        is_open = takes_other_arguments(self.parameters)
        return SchemaArguments(self.parameters, takes_others=is_open)

    async def validate(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments as the tool wants them."""
        return self._arguments.validate(arguments)

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[ToolStep, None]:
        """Call the tool; the server is started first if it does not run."""
        if self.approval == "unknown":  # it is allowed without a question: a change will be asked
            digests = {self.key: self._current.digest}
            await self._servers.approved.add(self.server_name, digests, only_new=True)
        server = self._servers.of_session(self._server, context.conversation_id)
        await server.wait_started()
        if self._differs(server) and self._server.connection is None:  # an old list, perhaps
            await self._server.wait_started()
        self._check(server)
        yield ToolBegun()
        running, reports = RunningCall(context), ProgressReports(context)
        call = self._call(server, arguments, running, reports)
        async with aclosing(merge([call, running.steps(self), reports.events()])) as steps:
            async for step in steps:
                yield step

    def _differs(self, server: McpServer) -> bool:
        """Tell whether a session's own server describes it otherwise than it was listed."""
        own = self._described_by(server)
        return own is not None and own.digest != self._current.digest

    def _check(self, server: McpServer) -> None:
        """Raise ToolFailed if the tool is not what was approved: a start may show that."""
        if self.approval == "changed":
            raise ToolFailed(CHANGED_NOW.format(tool=self.name))
        if self._differs(server):
            self._server.start().refresh()
            raise ToolFailed(DIFFERS.format(tool=self.name))

    async def _call(
        self,
        server: McpServer,
        arguments: JSONObject,
        running: RunningCall,
        reports: ProgressReports,
    ) -> AsyncGenerator[ToolStep, None]:
        from .results import output_of  # noqa: PLC0415 - with the SDK

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports(progress, total, message)

        async def call(client: Client) -> CallToolResult:
            self._check(server)  # this may be another connection than the one that was begun
            with server.input.running(running):
                return await client.call_tool(
                    self.described.name, arguments, progress_callback=report
                )

        try:
            output = output_of(await server.request(call), server.log.secrets)
        finally:
            running.close()
            reports.close()
        yield output


class McpSource(ToolSource):
    """The tools of all servers, as far as they are known: nothing waits for a server."""

    name = "mcp"

    def __init__(self, servers: McpServers) -> None:
        self.servers = servers
        self._version = -1
        self._tools: Sequence[McpTool] = ()
        self._groups: Mapping[str, Sequence[str]] = {}
        self._problems: Sequence[Problem] = ()

    async def tools(self) -> Sequence[McpTool]:
        servers = await self.servers.refresh()
        await self.servers.approved.refresh()
        if self._version != self.servers.version:
            self._version = self.servers.version
            self._make(servers)
            await self._approve_trusted()
        return self._tools

    async def _approve_trusted(self) -> None:
        """Approve the tools of trusted servers, as they are described when they are seen first."""
        new: dict[str, dict[str, str]] = {}
        for tool in self._tools:
            if tool.is_trusted and tool.approval == "unknown":
                new.setdefault(tool.server_name, {})[tool.key] = tool.fingerprint
        for name, digests in new.items():
            await self.servers.approved.add(name, digests, only_new=True)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return self._groups

    def problems(self) -> Sequence[Problem]:
        failed = [
            self._problem(f"The MCP server {name!r} cannot be used: {server.last_error}.")
            for name, server in self.servers.servers.items()
            if server.last_error is not None
        ]
        return [*self.servers.problems, *self._problems, *failed]

    def missing(self, name: str) -> Problem | None:
        """Say why a server whose tools have such names has none of this name or pattern."""
        named = [
            each for each in self.servers.configs.values() if name.startswith(f"{each.prefix}__")
        ]
        if not named:
            return None
        config = max(named, key=lambda each: len(each.prefix))
        server = self.servers.get(config.name)
        the_server = f"the MCP server {config.name!r}"
        if server is None:
            return self._problem(f"{the_server} is disabled")
        if server.facts is None and server.last_error is not None:
            return self._problem(f"{the_server} cannot be used: {server.last_error}")
        if server.facts is None:
            reason = f"{the_server} has not listed its tools yet; it is being started"
            return replace(self._problem(reason), severity="hint")
        facts = server.facts
        names = {facts.offered_name(config.prefix, each.name) for each in facts.tools}
        if fnmatch.filter(names, name):
            return self._problem(f"the configuration of {the_server} does not allow it")
        return self._problem(f"{the_server} has no such tool that can be used")

    async def wait_for(self, names: Collection[str], group: str | None) -> bool:
        """Wait a while for servers that begin with these names and have just begun to start."""
        servers = (await self.servers.refresh()).values()
        waiting = [
            server
            for server in servers
            if server.facts is None
            and (
                server.config.name == group
                or any(name.startswith(f"{server.config.prefix}__") for name in names)
            )
        ]
        async with anyio.create_task_group() as tasks:
            for server in waiting:
                tasks.start_soon(server.wait_known)
        return any(server.facts is not None for server in waiting)

    async def reload(self) -> None:
        """Let all servers list their tools again; wait a while for those that start."""
        await self.servers.reload()
        with anyio.move_on_after(PATIENCE_SECONDS):
            for server in list((await self.servers.refresh()).values()):
                if server.connection is not None:
                    await server.connection.wait_started()

    async def aclose(self) -> None:
        await self.servers.aclose()

    def _make(self, servers: Mapping[str, McpServer]) -> None:
        tools: dict[str, McpTool] = {}
        groups: dict[str, list[str]] = {}
        problems: list[Problem] = []
        for name, server in servers.items():
            facts = server.facts
            if facts is None:
                continue
            names = groups.setdefault(name, [])
            offered, left_out = _fitting(server, facts)
            if left_out:
                problems.append(self._problem(_left_out(name, left_out)))
            for described in offered:
                tool = McpTool(described, facts, server, self.servers)
                first = tools.setdefault(tool.name, tool)
                if first is tool:
                    names.append(tool.name)
                    continue
                reason = (
                    f"The tool {described.name!r} of the MCP server {name!r} cannot be used: the "
                    f"name {tool.name!r} is taken by {first.described.name!r} of "
                    f"{first.server_name!r}."
                )
                problems.append(self._problem(reason, tool=tool.name))
            problems += [
                self._problem(
                    f"The tool {tool!r} of the MCP server {name!r} cannot be used: {reason}."
                )
                for tool, reason in facts.unusable.items()
            ]
        self._tools = list(tools.values())
        self._groups, self._problems = groups, problems

    def _problem(self, reason: str, *, tool: str | None = None) -> Problem:
        path = self.servers.config_file.path
        return Problem(file=str(path), line=None, reason=reason, tool=tool)


def _fitting(server: McpServer, facts: ServerFacts) -> tuple[list[McpToolDescription], list[str]]:
    """Return the tools that are offered, and the names of those that are too much in all."""
    offered: list[McpToolDescription] = []
    left_out: list[str] = []
    size = 0
    for described in facts.tools:
        if not server.config.options.tools.allows(described.name):
            continue
        if size + described.size > MAX_OFFERED:
            left_out.append(described.name)
        else:
            size += described.size
            offered.append(described)
    return offered, left_out


def _left_out(name: str, tools: Sequence[str]) -> str:
    named = ", ".join(map(repr, tools[:SHOWN_NAMES]))
    others = f" and {len(tools) - SHOWN_NAMES} more" if len(tools) > SHOWN_NAMES else ""
    return (
        f"Tools of the MCP server {name!r} are left out, as its tools have more than "
        f"{MAX_OFFERED:,} characters in all: {named}{others}. "
        "'tools' under 'mochi' in its entry can say which ones are needed."
    )
