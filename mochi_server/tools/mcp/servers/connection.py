"""One connection to one MCP server, from its start to its end.

The SDK's client is entered, used for what is not a call, and left in one task. Calls come from any
task: a request of the SDK needs none of its own, and being cancelled it tells the server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import ValidationError

from ....core.aio import BackgroundTasks
from ....core.logs import one_line
from ...base import ToolFailed
from ..descriptions import (
    MAX_TOOLS,
    McpToolDescription,
    Unusable,
    offered_name,
    read_tool,
    taken_names,
)
from ..failures import error_text, first_problems
from ..prompt_descriptions import MAX_PROMPTS, McpPromptDescription, describe_prompt
from ..secret_values import SecretValues, redact_logs

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp.shared.exceptions import MCPError
    from mcp_types import Tool

    from ..transports.limits import Streams

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_SECONDS = 60.0
"""Longest start, in which ``npx`` and ``uvx`` may download the server."""
LIST_SECONDS = 30.0
PROMPTS_SECONDS = 5.0
"""Longest wait for the prompts of a server, whose tools are listed already."""
RELIST_SECONDS = 1.0
"""Shortest time between two lists, however often they change."""
LIST_CHANGES = frozenset({"notifications/tools/list_changed", "notifications/prompts/list_changed"})
LISTEN_AGAIN_SECONDS = 10.0
MAX_PAGES = 100
SETTLE_SECONDS = 0.5
"""How far apart the end of a connection and the reason of it may be."""
SESSION_LOST = "Session terminated"
"""What the SDK makes of a response 404 to a request of a session."""
END_SECONDS = 5.0
"""Longest wait for a connection that is being closed."""


class ServerFailed(ToolFailed):
    """The server cannot be used at present; the text says why."""


class SessionLost(ServerFailed):
    """The server has forgotten the connection, and has not done what was requested."""


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


class McpConnection:
    """A connection that is made as soon as it is built, in the background.

    Args:
        name: Of the server, for people.
        load_sdk: Returns the SDK's client, which takes a second to import.
        transport: Opens the streams; gets a function to call with the reason when they end.
        tasks: Where it runs.
        secrets: What no error shows.
        options: Further arguments of the SDK's ``Client``, such as callbacks.
        on_facts: Is called with what the server says, at the start and whenever its tools change.
        on_end: Is called once, when the connection ends; its process may still be there.
    """

    def __init__(
        self,
        name: str,
        transport: Callable[[Callable[[str], None]], AbstractAsyncContextManager[Streams]],
        load_sdk: Callable[[], Awaitable[type[Client]]],
        *,
        tasks: BackgroundTasks,
        secrets: SecretValues,
        options: Mapping[str, Any],
        on_facts: Callable[[ServerFacts], None],
        on_end: Callable[[McpConnection], None],
    ) -> None:
        self.name = name
        self._transport = transport
        self._load_sdk = load_sdk
        self._secrets = secrets
        self._options = options
        self.tasks = tasks
        self._on_facts = on_facts
        self._on_end = on_end
        self._client: Client | None = None
        self._started = asyncio.Event()
        self._wake = asyncio.Event()
        """Set when the connection is to end, or the list of tools to be read again."""
        self._must_list = False
        self._ending = asyncio.Event()
        self._starting: anyio.CancelScope | None = None
        self.end_reason: str | None = None
        """Why it has ended, or is to end; None while it may be used."""
        self.began = time.monotonic()
        self.users = 0
        """Requests that are under way."""
        self.used_at = time.monotonic()
        """When the last request ended."""
        self.has_served = False
        """Whether a request has succeeded."""
        self.latency: float | None = None
        """Seconds that the last request of a list took."""
        self.task = tasks.spawn(self._run(), name=f"MCP server {name}")

    @property
    def is_ready(self) -> bool:
        return self._client is not None and self.end_reason is None

    async def wait_started(self) -> None:
        """Wait until it is ready, or has failed."""
        await self._started.wait()

    async def request(self, operation: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the SDK's client, once it is ready.

        Raises:
            ServerFailed: There is no answer, or the answer is an error.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

        self.users += 1
        try:
            await self._started.wait()
            if self._client is None or self.end_reason is not None:
                raise ServerFailed(self._failure("cannot be used"))
            try:
                result = await operation(self._client)
            except MCPError as error:
                raise await self._failure_of(error) from error
            except (ValidationError, RuntimeError) as error:
                text = f"its answer cannot be used: {self._shown(_reason(error))}"
                raise ServerFailed(f"The MCP server {self.name!r} failed: {text}") from error
            self.has_served = True
            return result
        finally:
            self.users -= 1
            self.used_at = time.monotonic()

    async def _failure_of(self, error: MCPError) -> ServerFailed:
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - slow to import

        if error.message == SESSION_LOST:
            self.end("it has ended the session")
            return SessionLost(self._failure("ended during the call"))
        if error.code == CONNECTION_CLOSED:
            with anyio.move_on_after(SETTLE_SECONDS):
                await self._ending.wait()
        if self.end_reason is not None:
            return ServerFailed(self._failure("ended during the call"))
        text = error_text(error, self._secrets) or "it does not say why"
        return ServerFailed(f"The MCP server {self.name!r} failed: {text}")

    def _failure(self, what: str) -> str:
        reason = self.end_reason or "it is not connected"
        return f"The MCP server {self.name!r} {what}: {reason}."

    def _shown(self, text: str) -> str:
        return one_line(self._secrets.redacted(text))

    def refresh(self) -> None:
        """Read the list of tools again, soon."""
        self._must_list = True
        self._wake.set()

    def end(self, reason: str) -> None:
        """End it; requests that are under way fail with the reason."""
        if self.end_reason is not None:
            return
        self.end_reason = self._shown(reason)
        self._ending.set()
        self._wake.set()
        if self._starting is not None:
            self._starting.cancel()
        self._on_end(self)

    async def aclose(self, reason: str = "it was stopped") -> None:
        """End it and wait until it has ended, with every process that it started."""
        self.end(reason)
        if not (await asyncio.wait({self.task}, timeout=END_SECONDS))[0]:
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=END_SECONDS)

    async def _run(self) -> None:
        try:
            await self._serve()
        except Exception as error:
            self.end(_reason(error))
            logger.debug("MCP server %s", self.name, exc_info=True)
        finally:
            self._client = None
            self.end("it ended")
            self._started.set()

    async def _serve(self) -> None:
        make_client = await self._load_sdk()
        listening: asyncio.Task[None] | None = None
        with anyio.CancelScope() as starting:
            self._starting = starting
            if self.end_reason is not None:
                return
            starting.deadline = anyio.current_time() + START_SECONDS
            client = make_client(
                _Opened(self._transport(self.end)),
                message_handler=self._on_message,
                cache=None,
                **self._options,
            )
            async with client:
                facts = await self._facts(client)
                self._starting, starting.deadline = None, math.inf
                self._on_facts(facts)
                self._client = client
                self.used_at = time.monotonic()
                self._started.set()
                name = f"changes of MCP server {self.name}"
                listening = self.tasks.spawn(self._listen(client), name=name)
                try:
                    await self._keep(client)
                finally:
                    listening.cancel()
        if listening is None:
            self.end(f"it did not start within {START_SECONDS:g} seconds")

    async def _keep(self, client: Client) -> None:
        """Return when the connection is to end; read the list of tools when it has changed."""
        while self.end_reason is None:
            await self._wake.wait()
            self._wake.clear()
            if not self._must_list or self.end_reason is not None:
                continue
            self._must_list = False
            try:
                with anyio.fail_after(LIST_SECONDS):
                    self._on_facts(await self._facts(client))
            except Exception as error:  # noqa: BLE001 - the earlier list is still there
                reason = self._shown(_reason(error))
                logger.info("The tools of MCP server %s: %s", self.name, reason)
            with anyio.move_on_after(RELIST_SECONDS):
                await self._ending.wait()

    async def _facts(self, client: Client) -> ServerFacts:
        tools: list[McpToolDescription] = []
        unusable: dict[str, str] = {}
        async for count, tool in self._list(client):
            await asyncio.sleep(0)  # each takes a while, and there may be a thousand
            if count > MAX_TOOLS:
                left_out = f"it and those after it are left out, as there are {MAX_TOOLS:,} others"
                unusable[one_line(tool.name)] = left_out
                continue
            try:
                tools.append(read_tool(tool))
            except Unusable as error:
                unusable[one_line(tool.name)] = str(error)
        info = client.server_info
        return ServerFacts(
            tools=tools,
            unusable=unusable,
            prompts=await self._prompts(client),
            protocol_version=client.protocol_version,
            server_info=None
            if info is None
            else {"name": one_line(info.name), "version": one_line(info.version)},
        )

    async def _list(self, client: Client) -> AsyncGenerator[tuple[int, Tool], None]:
        if client.server_capabilities.tools is None:
            return
        cursor: str | None = None
        count = 0
        for _ in range(MAX_PAGES):
            began = time.monotonic()
            page = await client.list_tools(cursor=cursor)
            self.latency = time.monotonic() - began
            for tool in page.tools:
                count += 1
                yield count, tool
                if count > MAX_TOOLS:
                    return
            if not (cursor := page.next_cursor):
                return

    async def _prompts(self, client: Client) -> list[McpPromptDescription]:
        """Return the prompts; none if they cannot be listed, which its tools must not feel."""
        prompts: list[McpPromptDescription] = []
        if client.server_capabilities.prompts is None:
            return prompts
        try:
            with anyio.fail_after(PROMPTS_SECONDS):
                cursor: str | None = None
                for _ in range(MAX_PAGES):
                    page = await client.list_prompts(cursor=cursor)
                    prompts += filter(None, map(describe_prompt, page.prompts))
                    cursor = page.next_cursor
                    if not cursor or len(prompts) >= MAX_PROMPTS:
                        break
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of it
            logger.info("The prompts of MCP server %s: %s", self.name, self._shown(_reason(error)))
        return prompts[:MAX_PROMPTS]

    async def _on_message(self, message: Any) -> None:  # noqa: ANN401 - the SDK's union
        if getattr(message, "method", None) in LIST_CHANGES:
            self.refresh()

    async def _listen(self, client: Client) -> None:
        """Be told of changes, by servers of 2026 that have to be asked for that."""
        from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415

        offered = client.server_capabilities
        tools = offered.tools is not None and bool(offered.tools.list_changed)
        prompts = offered.prompts is not None and bool(offered.prompts.list_changed)
        while (tools or prompts) and self.end_reason is None:
            try:
                async with client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts
                ) as changes:
                    async for _ in changes:
                        self.refresh()
            except (ListenNotSupportedError, MCPError):
                return
            except RuntimeError:
                logger.debug("MCP server %s tells no changes", self.name, exc_info=True)
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)
            self.refresh()


class _Opened:
    """The transport as the SDK's client takes it: entered and left by the client."""

    def __init__(self, transport: AbstractAsyncContextManager[Streams]) -> None:
        self._transport = transport

    async def __aenter__(self) -> Streams:
        return await self._transport.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:  # noqa: ANN401
        return await self._transport.__aexit__(*error)


def import_client() -> type[Client]:
    """Import the SDK with what uses it here; blocks for a second."""
    from mcp.client.client import Client  # noqa: PLC0415 - an extra, and slow

    from ..transports import http, stdio  # noqa: F401, PLC0415 - the same

    redact_logs()
    return Client


def _reason(error: BaseException) -> str:
    """Return the first cause in a group of exceptions, as the end of a sentence."""
    while causes := getattr(error, "exceptions", None):  # Python 3.10 has no exception groups
        error = causes[0]
    if isinstance(error, ValidationError):
        return first_problems(error)
    if isinstance(error, ModuleNotFoundError):
        return "the extra is not installed: pip install 'mochi-server[mcp]'"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {str(error.filename)!r}"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be reached or started: {error.strerror}"
    return str(error) or type(error).__name__
