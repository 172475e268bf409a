"""Requests to MCP servers for people, whose failures are errors and no results for a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ...errors import McpServerFailed, MochiError
from ..base import ToolFailed
from .failures import error_text

if TYPE_CHECKING:
    from mcp.client.client import Client

    from .servers.server import McpServer

T = TypeVar("T")

REFUSED: Final = frozenset({-32602, -32002})
"""Codes of errors by which servers refuse what was asked: invalid parameters; until 2026, that
there is no such resource."""


async def request_server(server: McpServer, operation: Callable[[Client], Awaitable[T]]) -> T:
    """Request something of a server, which is started if it does not run.

    Raises:
        McpServerFailed: it does not run, does not answer in time, or its answer is an error.
    """
    name = server.config.name
    try:
        with anyio.fail_after(server.timeout):
            return await server.request(operation)
    except ToolFailed as error:
        raise McpServerFailed(str(error), details={"server": name}) from error
    except TimeoutError as error:
        raise McpServerFailed(
            server=name, reason=f"it took longer than {server.timeout:g} s"
        ) from error


@contextmanager
def refusals(server: McpServer, translate: Callable[[str], MochiError]) -> Iterator[None]:
    """Raise an error of ours, made from the server's text, where the server refuses a request."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

    try:
        yield
    except MCPError as error:
        if error.code not in REFUSED:
            raise
        raise translate(error_text(error, server.log.secrets)) from error
