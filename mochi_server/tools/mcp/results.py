"""Results of MCP tools: text for a model, and files."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from pydantic_core import to_json

from ...core.logs import one_line
from ..base import ToolFailed, ToolFile, ToolOutput
from ..functions.results import clean
from .secret_values import SecretValues

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MAX_FILES = 20
"""Files of one result that are kept."""
BINARY = "application/octet-stream"


def output_of(result: CallToolResult, secrets: SecretValues) -> ToolOutput:
    """Return the result as text, with the files that are in it.

    Raises:
        ToolFailed: the result is that the call failed; the text has none of the secrets.
    """
    text = "\n".join(shown_block(block) for block in result.content)
    if not text.strip() and result.structured_content is not None:
        text = to_json(result.structured_content).decode()
    text = clean(text)
    if result.is_error:
        raise ToolFailed(secrets.redacted(text) or "it failed without saying why.")
    files = [file for block in result.content if (file := _file(block)) is not None]
    return ToolOutput(text, files[:MAX_FILES])


def _file(block: ContentBlock) -> ToolFile | None:
    """Return what a block contains beside text."""
    match block.type:
        case "image" | "audio":
            data, media_type, name = block.data, block.mime_type, ""
        case "resource" if (blob := getattr(block.resource, "blob", None)) is not None:
            uri = str(block.resource.uri)
            data, media_type = blob, block.resource.mime_type or BINARY
            name = uri.rpartition("/")[2]
        case _:
            return None
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    return ToolFile(
        content=content,
        media_type=one_line(media_type),
        name=one_line(name) if name else None,
    )


def shown_block(block: ContentBlock) -> str:
    """Return the text of a block, or a line that says what it is."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            size = len(block.data) * 3 // 4 - block.data[-2:].count("=")
            return f"[{block.type}: {one_line(block.mime_type)}, {size:,} bytes]"
        case "resource_link":
            return f"[resource {one_line(block.uri)}: {one_line(block.title or block.name)}]"
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return str(text)
            kind = one_line(resource.mime_type or "unknown type")
            return f"[resource {one_line(str(resource.uri))}: {kind}]"
