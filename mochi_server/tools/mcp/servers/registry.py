"""The MCP servers of the configuration: started when they are needed, ended when they are idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.aio import BackgroundTasks, in_daemon_thread, in_thread
from ....errors import JSONObject, McpServerExists
from ...base import Problem
from ..approvals import ApprovedTools
from ..config.entry import CONFINES_NOTHING, UNCONFINED, McpServerConfig
from ..config.file import McpConfig, McpConfigFile
from ..transports.log import LOG_LINES
from .cache import FactsCache
from .connection import McpConnection, import_client
from .facts import ServerFacts
from .opening import TransportOpener
from .server import CLOSED, STOPPED, McpServer, McpServerStatus

if TYPE_CHECKING:
    from mcp.client.client import Client


logger = logging.getLogger(__name__)


START_DELAY = 0.1
"""Seconds until a server of which nothing is known begins to start; the next one a little later."""
TEND_SECONDS = 5.0
CLOSE_SECONDS = 8.0


class McpServers:
    """All servers of the configuration, which is read again when it has changed.

    Nothing is started before ``refresh`` finds a server of which nothing is known, or one is used.

    Args:
        config_file: The configuration.
        opener: Starts and reaches them.
        default_timeout: Seconds for a request of a server whose configuration names none.
        builtin: Servers beside those of the file, which win where names are the same.
        idle_seconds: After so long without a call a server ends, until the next one.
        cache_folder: Where the tools of servers are kept between runs; None: nowhere.
        approved_path: File of the descriptions of tools that a person has approved.
    """

    def __init__(
        self,
        config_file: McpConfigFile,
        opener: TransportOpener,
        *,
        default_timeout: float | None,
        builtin: Sequence[McpServerConfig] = (),
        idle_seconds: float = 600.0,
        cache_folder: Path | None = None,
        approved_path: Path | None = None,
    ) -> None:
        self.config_file = config_file
        self.default_timeout = default_timeout
        self.closed = False
        self.version = 0
        """Grows whenever a list of tools may have changed."""
        self._builtin = {config.name: config for config in builtin}
        self._withdrawn: list[Problem] = []
        self._idle_seconds = idle_seconds
        self._cache = FactsCache(cache_folder)
        self.approved = ApprovedTools(approved_path)
        self._opener = opener
        self._authorizations = opener.authorizations
        self._authorizations.on_authorized = self._authorized
        self._tasks = BackgroundTasks()
        self._config = McpConfig()
        self.servers: Mapping[str, McpServer] = {}
        """Enabled servers by name; where each session has its own, the one that lists tools."""
        self._of_sessions: dict[tuple[str, str], McpServer] = {}
        self._retired: list[McpServer] = []
        self._tending: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._importing: asyncio.Task[type[Client] | ImportError] | None = None

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with the configuration, and why built-in servers were withdrawn."""
        return [*self._config.problems, *self._withdrawn]

    def withdraw(self, name: str, reason: str) -> None:
        """Offer a built-in server no longer; ``problems`` has the reason."""
        if self._builtin.pop(name, None) is not None:
            self._withdrawn.append(
                Problem(file=str(self.config_file.path), line=None, reason=reason)
            )
            self._config = McpConfig()  # the next use applies the file again

    @property
    def configs(self) -> Mapping[str, McpServerConfig]:
        """Every server of the last ``refresh`` or ``status``, also those that are disabled."""
        return {**self._config.servers, **self._builtin}

    async def refresh(self) -> Mapping[str, McpServer]:
        """Read the configuration if it has changed, and return the servers by name.

        A server of which nothing is known begins to start; nothing is waited for.
        """
        await self._read()
        if not self.closed:
            self._start_unknown()
        return self.servers

    async def _read(self) -> None:
        """Read the configuration if it has changed; nothing is started."""
        async with self._reading:
            config = await self.config_file.read()
            if config.is_unreadable:  # half of what somebody writes: what was known stays
                self._config = replace(self._config, problems=config.problems)
            elif config is not self._config and not self.closed:
                await self._apply(config)

    def _start_unknown(self) -> None:
        """Let servers of which nothing is known start one after the other, soon.

        First of all, whoever asks for the list of tools gets it.
        """
        delay = START_DELAY
        for server in self.servers.values():
            if server.facts is None and not server.is_waiting and server.start_later(delay):
                delay += START_DELAY / 2

    async def _apply(self, config: McpConfig) -> None:
        wanted = {**config.servers, **self._builtin}
        enabled = {name: each for name, each in wanted.items() if not each.disabled}
        kept = {
            name: each for name, each in self.servers.items() if enabled.get(name) == each.config
        }
        new = [each for name, each in enabled.items() if name not in kept]
        for each in new:
            if each.options.sandbox == UNCONFINED and each.name not in self._builtin:
                logger.warning(CONFINES_NOTHING.format(name=each.name))
        known = await in_thread(self._cache.read, new)
        made = {each.name: McpServer(each, self, facts=known.get(each.name)) for each in new}
        for name, server in self.servers.items():
            if name not in kept:
                self._retire(server)
        for key in [key for key in self._of_sessions if key[0] not in kept]:
            self._retire(self._of_sessions.pop(key))
        self.servers = {name: kept.get(name) or made[name] for name in enabled}
        self._config = config
        self.version += 1

    def _retire(self, server: McpServer) -> None:
        """Let a server end when nobody uses it; a running turn may hold tools of it."""
        server.is_retired = True
        self._retired.append(server)
        self._tend()

    async def start_eager(self) -> None:
        """Start what the configuration wants to run from the beginning."""
        for server in (await self.refresh()).values():
            if server.config.options.start == "eager" and server.state == "stopped":
                server.start()

    def of_session(self, server: McpServer, session_id: str) -> McpServer:
        """Return the server that a session uses: its own, if the configuration says so."""
        if server.config.options.scope == "shared":
            return server
        key = (server.config.name, session_id)
        own = self._of_sessions.get(key)
        every = self._retired if own is None else [own, *self._retired]
        for each in every:
            if each.session_id == session_id and each.config == server.config:
                return each
        made = McpServer(server.config, self, session_id=session_id, facts=server.facts)
        if server.is_retired:  # a running turn holds tools of it
            self._retire(made)
            return made
        if own is not None:
            self._retire(own)
        self._of_sessions[key] = made
        return made

    async def end_session(self, session_id: str) -> None:
        """End the servers of a session, which is deleted."""
        keys = [key for key in self._of_sessions if key[1] == session_id]
        ended = [self._of_sessions.pop(key) for key in keys]
        ended += [each for each in self._retired if each.session_id == session_id]
        await asyncio.gather(*(each.stop(STOPPED) for each in ended))

    def get(self, name: str) -> McpServer | None:
        """Return a server of the last ``refresh``; None: it is not there, or disabled."""
        return self.servers.get(name)

    async def status(self) -> list[McpServerStatus]:
        """Return every server of the configuration; nothing is started."""
        await self.approved.refresh()
        await self._read()
        return [self._status_of(config) for config in self.configs.values()]

    def _status_of(self, config: McpServerConfig) -> McpServerStatus:
        server = self.servers.get(config.name)
        status = McpServerStatus(
            name=config.name,
            state="disabled",
            transport=config.transport,
            scope=config.options.scope,
        )
        if server is None:
            return status
        every = self._all_of(server)
        running = [each for each in every if each.connection is not None]
        shown = next((each for each in every if each.state == "ready"), server)
        facts = server.facts or ServerFacts()
        status = replace(status, state=shown.state, last_error=shown.last_error)
        return replace(
            status,
            tools=[tool.name for tool in facts.tools],
            latency=shown.connection.latency if shown.connection is not None else None,
            restarts=sum(each.restarts for each in every),
            protocol_version=facts.protocol_version,
            server_info=facts.server_info,
            connections=len(running),
            unusable=facts.unusable,
            changed=[
                tool.name
                for tool in facts.tools
                if self.approved.approval_of(
                    config.name, facts.approval_key(config.prefix, tool.name), tool.digest
                )
                == "changed"
            ],
            **self._authorization_of(config.name),
        )

    def _authorization_of(self, name: str) -> dict[str, Any]:
        """Return what else the status says while a person has to authorize, or did not."""
        if (pending := self._authorizations.pending(name)) is not None:
            return {"state": "needs_authorization", "authorization_url": pending.url}
        failure = self._authorizations.failure(name)
        return {} if failure is None else {"last_error": failure}

    def is_authorizing(self, name: str) -> bool:
        """Tell whether a person is being asked to authorize a server, or soon will be."""
        return self._authorizations.is_under_way(name)

    async def complete_authorization(self, state: str, answer: JSONObject) -> str:
        """Take what a browser has brought; see ``McpAuthorizations.complete``."""
        return await self._authorizations.complete(state, answer)

    def _authorized(self, name: str) -> None:
        """Start what could not be used without the authorization."""
        server = self.servers.get(name)
        for each in [] if server is None or self.closed else self._all_of(server):
            if each.state == "failed":
                each.start()

    async def add(self, name: str, entry: JSONObject) -> None:
        """Add a server to the configuration, and begin to start it; see ``McpConfigFile.add``."""
        if name in self._builtin:
            raise McpServerExists(server=name)
        await self.config_file.add(name, entry)
        await self.refresh()

    async def change(self, name: str, changes: JSONObject) -> None:
        """Change a server in the configuration; see ``McpConfigFile.change``."""
        await self.config_file.change(name, changes)
        await self.refresh()

    async def remove(self, name: str) -> None:
        """Remove a server, and its tokens; see ``McpConfigFile.remove``."""
        config = (await self.config_file.read()).servers.get(name)
        await self.config_file.remove(name)
        if config is not None:
            await self._authorizations.forget(config)
        await self.status()

    async def restart(self, name: str) -> None:
        """End a server and begin to start it; nothing is waited for but its end.

        Raises:
            KeyError: there is none of this name, or it is disabled.
        """
        await self.status()
        server = self.servers[name]
        await self.stop(name)
        server.restarts += 1
        server.start()

    async def stop(self, name: str) -> None:
        """End a server until it is used again. Raises KeyError as ``restart``."""
        every = self._all_of(self.servers[name])
        await asyncio.gather(*(each.stop(STOPPED) for each in every))

    def log_of(self, name: str) -> list[str]:
        """Return the last lines that a server has written to stderr. Raises KeyError."""
        every = self._all_of(self.servers[name])
        return [line for each in every for line in each.log.lines][-LOG_LINES:]

    def _all_of(self, server: McpServer) -> list[McpServer]:
        """Return a server of the configuration, and those of sessions."""
        name = server.config.name
        return [server, *(each for key, each in self._of_sessions.items() if key[0] == name)]

    async def reload(self) -> None:
        """List the tools of all servers again; those that do not run are started."""
        servers = (await self.refresh()).values()
        for server in servers:
            if server.state == "ready" and server.connection is not None:
                server.connection.refresh()
            elif server.state != "starting":
                server.start()

    async def aclose(self) -> None:
        """End all servers, and wait until no process of them is left; may be called again."""
        self.closed = True
        if self._tending is not None:
            self._tending.cancel()
        every = [*self.servers.values(), *self._of_sessions.values(), *self._retired]
        await asyncio.gather(*(server.stop(CLOSED) for server in every))
        await self._authorizations.aclose()
        await self._tasks.drain(CLOSE_SECONDS)

    # What a server needs of all.

    def connect(self, server: McpServer) -> McpConnection:
        if server.session_id is not None and not server.is_retired:  # it may have been let go
            key = (server.config.name, server.session_id)
            server.is_retired = self._of_sessions.setdefault(key, server) is not server
        if server.is_retired and server not in self._retired:
            self._retired.append(server)
        self._tend()
        is_builtin = server.config is self._builtin.get(server.config.name)
        allowed_commands = () if is_builtin else self.config_file.allowed_commands
        return McpConnection(
            server.config.name,
            partial(self._opener.open, server, allowed_commands),
            self._load_sdk,
            tasks=self._tasks,
            secrets=server.log.secrets,
            options=server.input.options(),
            on_facts=server.note_facts,
            on_end=server.note_end,
        )

    async def _load_sdk(self) -> type[Client]:
        """Import the SDK once for all, in a thread of its own: file work must not wait for it."""
        if self._importing is None:
            work = in_daemon_thread(_import_sdk)
            self._importing = self._tasks.spawn(work, name="import of the SDK of MCP")
        client = await asyncio.shield(self._importing)
        if isinstance(client, ImportError):
            raise client
        return client

    def keep_facts(self, server: McpServer) -> None:
        """Let others know the tools that a server has listed, also after a restart."""
        self.version += 1
        if self.servers.get(server.config.name) is server and server.facts is not None:
            work = in_thread(self._cache.write, server.config, server.facts)
            self._tasks.spawn(work, name=f"keep tools of MCP server {server.config.name}")

    def _tend(self) -> None:
        if (self._tending is None or self._tending.done()) and not self.closed:
            self._tending = self._tasks.spawn(self._end_idle(), name="idle MCP servers")

    async def _end_idle(self) -> None:
        """End servers that are not used, as long as there are any that run."""
        pause = min(TEND_SECONDS, self._idle_seconds / 2)
        is_needed = True
        while is_needed:
            await asyncio.sleep(pause)
            running = [
                server.stop_if_idle(self._idle_seconds)
                for server in [*self.servers.values(), *self._of_sessions.values()]
                if server.config.options.start != "eager" or server.session_id is not None
            ]
            for key, server in [*self._of_sessions.items()]:
                if server.is_done:
                    del self._of_sessions[key]
            self._retired = [each for each in self._retired if each.stop_if_idle(0.0)]
            is_needed = any(running) or bool(self._retired)


def _import_sdk() -> type[Client] | ImportError:
    try:
        return import_client()
    except ImportError as error:  # the extra is not installed
        return error
