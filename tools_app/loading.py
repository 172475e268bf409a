"""Loads the folder of tools once without a server, for checks and commands."""

from __future__ import annotations

import asyncio

from mochi_server.backends import build_tool_loader
from mochi_server.config import MochiServerSettings
from mochi_server.tools.base import FolderDescription, FolderSpec
from mochi_server.tools.folder.snapshot import check_folder


def describe_tools(mochi: MochiServerSettings) -> FolderDescription:
    """What the folder has, loaded as a server does; not within an event loop."""
    if check_folder(mochi.tools_path).is_empty:
        return FolderDescription(folder=str(mochi.tools_path))
    return asyncio.run(_describe(mochi))


async def _describe(mochi: MochiServerSettings) -> FolderDescription:
    loader = build_tool_loader(mochi)
    try:
        [folder] = await loader.load([FolderSpec(path=mochi.tools_path)])
        return folder.description
    finally:
        await loader.aclose()
