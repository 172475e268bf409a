"""``mcp list|add|remove|test``: the MCP servers of the data folder, without a running server."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.base import INTERRUPTED
from mochi_project.management.console import as_json, cut, plain, table
from mochi_project.runtime import StorageHandler
from mochi_server.backends import build_mcp_servers, build_sandbox_launcher
from mochi_server.config import MochiServerSettings
from mochi_server.config.installation import own_command
from mochi_server.constants import LOOPBACK_HOSTS
from mochi_server.core.progress import counted
from mochi_server.errors import JSONObject, MochiError
from mochi_server.providers.common.values import REDACTED
from mochi_server.sessions import SessionManager
from mochi_server.tools.mcp.config.entry import McpServerConfig
from mochi_server.tools.mcp.config.file import McpConfigFile
from mochi_server.tools.mcp.servers.registry import McpServers
from mochi_server.tools.mcp.servers.server import McpServer, McpServerStatus
from mochi_server.workspace.session_folders import SessionFolders

TEXT_COLUMNS = 60
LOG_LINES = 20
"""Last lines of a server that failed."""
TARGET_COLUMNS = 80
POLL_SECONDS = 0.2
REQUEST_SECONDS = 10.0
PAGE = b"mochi-server has got the answer. You may close this page.\n"


class Command(BaseCommand):
    """Shows, changes and tries MCP servers."""

    help = (
        "Lists, adds, removes and tries the MCP servers of the data folder. mochi-server mcp "
        "without an ACTION is an MCP server itself, on standard input and output."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        def action(name: str, text: str) -> argparse.ArgumentParser:
            return actions.add_parser(name, help=text, description=text)

        listing = action("list", "List the servers; none is started.")
        listing.add_argument("--json", action="store_true", help="Print JSON.")
        add = action("add", "Add a server: a command behind --, or an address.")
        add.add_argument("name", metavar="NAME", help="letters, digits, '-' and '_'")
        add.add_argument("target", metavar="COMMAND|URL", nargs="+", help="behind --")
        add.add_argument("--env", metavar="NAME=VALUE", action="append", default=[])
        add.add_argument("--header", metavar="NAME:VALUE", action="append", default=[])
        add.add_argument("--type", choices=["stdio", "http", "sse"])
        add.add_argument(
            "--trusted", action="store_true", help="Believe what it says of its tools."
        )
        remove = action("remove", "Remove a server, and its tokens.")
        remove.add_argument("name", metavar="NAME")
        test = action("test", "Start a server, and list its tools.")
        test.add_argument("name", metavar="NAME")
        test.add_argument("--json", action="store_true", help="Print JSON.")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Run the action.

        Raises:
            CommandError: It is not possible; the text says why.
        """
        actions: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {
            "list": self._list,
            "add": self._add,
            "remove": self._remove,
            "test": self._test,
        }
        try:
            code = asyncio.run(actions[options["action"]](settings.MOCHI, options))
        except MochiError as error:
            raise CommandError(plain(error.message)) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if code:
            sys.exit(code)

    async def _list(self, mochi: MochiServerSettings, options: dict[str, Any]) -> int:
        config = await McpConfigFile(mochi.mcp_config_path).read()
        servers = config.servers.values()
        if options["json"]:
            shown = {server.name: server.shown() for server in servers}
            problems = [problem.as_json() for problem in config.problems]
            self.stdout.write(as_json({"servers": shown, "problems": problems}))
            return 0
        rows = [
            [
                server.name,
                server.transport,
                not server.disabled,
                server.options.trusted,
                _target(server),
            ]
            for server in servers
        ]
        columns = ("NAME", "TYPE", "ENABLED", "TRUSTED", "COMMAND OR ADDRESS")
        empty = f"No MCP servers in {mochi.mcp_config_path}."
        self.stdout.write(table(rows, columns) if rows else plain(empty))
        for problem in config.problems:
            self.stderr.write(plain(f"problem: {problem}"))
        return 0

    async def _add(self, mochi: MochiServerSettings, options: dict[str, Any]) -> int:
        file = McpConfigFile(mochi.mcp_config_path, allowed_commands=mochi.mcp_allowed_commands)
        server = await file.add(options["name"], _entry(options))
        folder = shlex.quote(str(mochi.data_dir))
        command = f"{own_command()} --data-dir {folder} mcp test {server.name}"
        self.stdout.write(plain(f"Added {server.name}. Try it: {command}"))
        return 0

    async def _remove(self, mochi: MochiServerSettings, options: dict[str, Any]) -> int:
        async with _servers(mochi) as servers:
            await servers.remove(options["name"])
        self.stdout.write(plain(f"Removed {options['name']}."))
        return 0

    async def _test(self, mochi: MochiServerSettings, options: dict[str, Any]) -> int:
        name = options["name"]
        async with _servers(mochi) as servers:
            known = {status.name for status in await servers.status()}
            server = servers.get(name)
            if server is None:
                why = "It is disabled." if name in known else " ".join(map(str, servers.problems))
                raise CommandError(
                    plain(f"There is no MCP server {name!r} to start. {why}").strip()
                )
            await server.start().wait_started()
            status = await self._authorized(servers, mochi, name)
            report = (
                as_json(_report(status)) if options["json"] else "\n".join(_lines(status, server))
            )
            self.stdout.write(report)
            if status.state == "ready":
                return 0
            for line in servers.log_of(name)[-LOG_LINES:]:
                self.stderr.write(plain(f"  {line}"))
            return 1

    async def _authorized(
        self, servers: McpServers, mochi: MochiServerSettings, name: str
    ) -> McpServerStatus:
        """Return the status when it is settled, after a person has authorized where needed."""
        shown = None
        async with _listening(servers, mochi.mcp_callback_url):
            while True:
                [status] = [each for each in await servers.status() if each.name == name]
                if status.authorization_url not in (None, shown):
                    shown = status.authorization_url
                    self.stderr.write(
                        f"Open this page in a browser, and allow the access:\n{shown}"
                    )
                is_begun = servers.is_authorizing(name)
                if status.state in ("ready", "failed") and not is_begun:
                    return status
                await anyio.sleep(POLL_SECONDS)


@asynccontextmanager
async def _servers(mochi: MochiServerSettings) -> AsyncIterator[McpServers]:
    """Give the servers as a server of mochi-server has them; all are ended at the end."""
    async with aclosing(SessionManager(StorageHandler()["default"])) as sessions:
        launcher = build_sandbox_launcher(mochi, SessionFolders(mochi.workspace_path, sessions))
        async with aclosing(build_mcp_servers(mochi, launcher)) as servers:
            yield servers


def _target(server: McpServerConfig) -> str:
    shown = server.shown()
    if server.url is not None:
        return str(shown["url"])
    arguments = shown.get("args", [])
    words = [str(shown["command"]), *(map(str, arguments) if isinstance(arguments, list) else [])]
    return cut(shlex.join(words).replace(f"'{REDACTED}'", REDACTED), TARGET_COLUMNS)


def _entry(options: dict[str, Any]) -> JSONObject:
    """Return the entry of the file that the options describe.

    Raises:
        CommandError: They contradict each other.
    """
    target: list[str] = options["target"]
    is_address = target[0].startswith(("http://", "https://"))
    if is_address and len(target) > 1:
        raise CommandError("An address stands alone; a command and its arguments stand behind --.")
    entry: JSONObject = {"url": target[0]} if is_address else {"command": target[0]}
    if len(target) > 1:
        entry["args"] = [*target[1:]]
    for key, given, mark in (("env", options["env"], "="), ("headers", options["header"], ":")):
        pairs = [text.partition(mark) for text in given]
        if not all(name and found for name, found, _ in pairs):
            raise CommandError(f"{key}: each is a name, {mark!r} and a value.")
        if pairs:
            entry[key] = {name.strip(): value.strip() for name, _, value in pairs}
    if options["type"] is not None:
        entry["type"] = options["type"]
    if options["trusted"]:
        entry["mochi"] = {"trusted": True}
    return entry


def _report(status: McpServerStatus) -> JSONObject:
    return {
        "name": status.name,
        "state": status.state,
        "protocol_version": status.protocol_version,
        "server_info": dict(status.server_info) if status.server_info is not None else None,
        "latency_ms": _milliseconds(status),
        "tools": [*status.tools],
        "unusable": dict(status.unusable),
        "last_error": status.last_error,
    }


def _lines(status: McpServerStatus, server: McpServer) -> Iterator[str]:
    if status.state != "ready":
        yield plain(f"{status.name}: {status.state}: {status.last_error}")
        return
    info = status.server_info or {}
    said = " ".join(filter(None, (info.get("name"), info.get("version")))) or "no name"
    yield plain(f"{status.name}: ready. It is {said}, and speaks MCP {status.protocol_version}.")
    yield f"{counted(len(status.tools), 'tool')}, listed within {_milliseconds(status)} ms."
    tools = server.facts.tools if server.facts is not None else ()
    rows = [[tool.name, cut(tool.description, TEXT_COLUMNS)] for tool in tools]
    if rows:
        yield table(rows, ("TOOL", "DESCRIPTION"))
    for tool, reason in status.unusable.items():
        yield plain(f"problem: {tool} cannot be used: {reason}")


def _milliseconds(status: McpServerStatus) -> float | None:
    return None if status.latency is None else round(status.latency * 1000, 1)


@asynccontextmanager
async def _listening(servers: McpServers, url: str) -> AsyncIterator[None]:
    """Be there when a browser comes back, unless a server listens, which hands it on."""
    parts = urlsplit(url)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, text = "400 Bad Request", b"This is no answer that is waited for.\n"
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("latin-1")
            given = urlsplit(line.split(" ")[1])
            fields = {name: values[0] for name, values in parse_qs(given.query).items()}
            if given.path == parts.path:
                kept: JSONObject = {
                    name: fields[name] for name in ("code", "iss", "error") if name in fields
                }
                await servers.complete_authorization(fields.get("state", ""), kept)
                status, text = "200 OK", PAGE
        except (MochiError, OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError):
            pass  # a guess, or no browser
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            f"Content-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        writer.close()

    async with AsyncExitStack() as stack:
        if parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS:
            with suppress(OSError):  # a server is there already
                server = await asyncio.start_server(answer, parts.hostname, parts.port or 80)
                await stack.enter_async_context(server)
        yield
