"""The resources of MCP servers, which people attach to their messages."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.caller import require
from ...core.logs import one_line
from ...core.media import as_text
from ...errors import (
    AttachmentTooLarge,
    AttachmentUnsupported,
    InvalidRequest,
    McpResourceNotFound,
    McpServerNotFound,
)
from ...sessions.attachments import AttachmentReader, NewAttachment
from ..functions.results import clean
from .requests import refusals, request_server

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp_types import (
        BlobResourceContents,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        TextResourceContents,
    )

    from .servers.registry import McpServers
    from .servers.server import McpServer

MAX_RESOURCES = 1_000
"""Of one page; and templates of a server."""
MAX_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResource:
    """A resource, or a template for the URIs of many, as its server describes it."""

    uri: str
    """Of a template: with variables as in RFC 6570."""
    name: str
    title: str | None
    description: str
    media_type: str | None
    size: int | None = None
    """Bytes, if the server says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResourcePage:
    """A page of a server's resources."""

    resources: Sequence[McpResource]
    templates: Sequence[McpResource]
    """All of the server, with the first page."""
    next_cursor: str | None


class McpResources:
    """Lists and reads the resources of servers, which are started if they do not run."""

    def __init__(self, servers: McpServers, reader: AttachmentReader) -> None:
        self._servers = servers
        self._reader = reader

    async def list(self, name: str, cursor: str | None = None) -> McpResourcePage:
        """Return a page of a server's resources, as the server divides them.

        Raises:
            McpServerNotFound: there is no server of this name, or it is disabled.
            InvalidRequest: the server does not know the cursor.
            McpServerFailed: it does not answer, or its answer is an error.
        """

        async def get(client: Client) -> McpResourcePage:
            if client.server_capabilities.resources is None:
                return McpResourcePage(resources=(), templates=(), next_cursor=None)
            with refusals(server, lambda text: InvalidRequest(text, details={"field": "cursor"})):
                page = await client.list_resources(cursor=cursor)
            return McpResourcePage(
                resources=[
                    _described(each, each.uri, each.size) for each in page.resources[:MAX_RESOURCES]
                ],
                templates=await _templates(client) if cursor is None else (),
                next_cursor=page.next_cursor,
            )

        server = await self._server(name)
        return await request_server(server, get)

    async def read(self, name: str, uri: str, *, session_id: str) -> NewAttachment:
        """Read a resource that can be attached to a message of a session.

        Raises:
            McpServerNotFound: there is no server of this name, or it is disabled.
            McpResourceNotFound: the server has no such resource.
            AttachmentTooLarge, AttachmentUnsupported: it cannot be given to a model.
            McpServerFailed: the server does not answer, or its answer is an error.
            Forbidden: the caller lacks the right ``tools``.
        """
        require("tools")

        def not_found(reason: str) -> McpResourceNotFound:
            return McpResourceNotFound(server=name, uri=uri, reason=reason)

        label = one_line(uri.rstrip("/").rpartition("/")[2] or uri)
        too_large = AttachmentTooLarge(name=label, limit_bytes=self._reader.max_bytes)

        async def get(client: Client) -> ReadResourceResult:
            if client.server_capabilities.resources is None:
                raise not_found("it has no resources")
            with refusals(server, not_found), _replaced_if_too_large(too_large):
                return await client.read_resource(uri)

        server = self._servers.of_session(await self._server(name), session_id)
        result = await request_server(server, get)
        if not result.contents:
            raise not_found("it has no content")
        parts = [_content_of(part) for part in result.contents]
        if len(parts) > 1 and any(as_text(part) is None for part in parts):
            raise AttachmentUnsupported(
                name=label, reason="it has several parts, and not all are texts in UTF-8"
            )
        attachment = await self._reader.read(
            b"\n\n".join(parts), name=label, media_type=result.contents[0].mime_type
        )
        return replace(attachment, name=label, server=name, uri=uri)

    async def _server(self, name: str) -> McpServer:
        servers: Mapping[str, McpServer] = await self._servers.refresh()
        if name not in servers:
            raise McpServerNotFound(server=name)
        return servers[name]


async def _templates(client: Client) -> list[McpResource]:
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

    templates: list[McpResource] = []
    cursor: str | None = None
    try:
        for _ in range(MAX_PAGES):
            page = await client.list_resource_templates(cursor=cursor)
            templates += [_described(each, each.uri_template) for each in page.resource_templates]
            cursor = page.next_cursor
            if not cursor or len(templates) >= MAX_RESOURCES:
                break
    except MCPError:  # many servers have resources and know no templates
        return templates
    return templates[:MAX_RESOURCES]


def _described(
    resource: Resource | ResourceTemplate, uri: str, size: int | None = None
) -> McpResource:
    return McpResource(
        uri=clean(uri),
        name=one_line(clean(resource.name)),
        title=None if resource.title is None else one_line(clean(resource.title)),
        description=clean(resource.description or ""),
        media_type=resource.mime_type,
        size=size,
    )


@contextmanager
def _replaced_if_too_large(error: AttachmentTooLarge) -> Iterator[None]:
    """Raise an error of ours where the answer was too large to be read."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

    from .transports.limits import TOO_LARGE  # noqa: PLC0415 - with the SDK

    try:
        yield
    except MCPError as failure:
        if failure.message == TOO_LARGE:
            raise error from failure
        raise


def _content_of(part: TextResourceContents | BlobResourceContents) -> bytes:
    blob: str | None = getattr(part, "blob", None)
    if blob is None:
        return str(getattr(part, "text", "")).encode("utf-8", "replace")
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        return b"\0"
