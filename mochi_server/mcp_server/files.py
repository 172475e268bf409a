"""Files that a tool returned in a direct call, as content of its result."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import mcp_types as types

from ..core.aio import in_thread
from ..errors import JSONObject, MochiError
from ..runtime import Runtime


async def take_files(
    runtime: Runtime, run_id: str, attachments: Sequence[JSONObject]
) -> list[types.ContentBlock]:
    """Return the files of a direct call, which are kept no longer: no message names them."""
    blocks: list[types.ContentBlock] = []
    try:
        for each in attachments:
            blocks.append(await _block(runtime, run_id, each))  # noqa: PERF401 - awaited
    except MochiError as error:
        blocks.append(types.TextContent(text=f"(A file is lost: {error.message})"))
    finally:
        await runtime.attachments.remove(run_id)
    return blocks


async def _block(runtime: Runtime, run_id: str, attachment: Any) -> types.ContentBlock:  # noqa: ANN401
    handle, _ = await runtime.attachments.open(run_id, attachment["attachment_id"])
    data = base64.b64encode(await in_thread(_read, handle)).decode()
    media_type = attachment["media_type"]
    if media_type.startswith("image/"):
        return types.ImageContent(data=data, mime_type=media_type)
    if media_type.startswith("audio/"):
        return types.AudioContent(data=data, mime_type=media_type)
    uri = f"mochi://files/{attachment['attachment_id']}"
    contents = types.BlobResourceContents(uri=uri, mime_type=media_type, blob=data)
    return types.EmbeddedResource(resource=contents)


def _read(handle: int) -> bytes:
    with open(handle, "rb") as file:
        return file.read()
