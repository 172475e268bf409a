"""Keeps loaded folders open for as long as somebody holds one of their tools."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from contextlib import AbstractAsyncContextManager
from itertools import count

from ...core.aio import BackgroundTasks
from ...errors import JSONObject
from ..base import LoadedFolder, ToolContext

CLOSE_SECONDS = 5.0
"""Longest wait at the end for folders that are being closed already."""


class FolderKeeper:
    """Closes each folder that it was given when the last reference to it is gone.

    So a reload cuts no call: a turn that holds a tool of the old state holds its folder.
    """

    def __init__(self) -> None:
        self._open: dict[int, LoadedFolder] = {}
        self._numbers = count()
        self._tasks = BackgroundTasks()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def keep(self, folder: LoadedFolder) -> LoadedFolder:
        """Return the folder for its users to hold; the argument itself must not be held."""
        number = next(self._numbers)
        self._open[number] = folder
        held = _HeldFolder(folder)
        loop = asyncio.get_running_loop()
        weakref.finalize(held, self._forgotten, loop, number).atexit = False
        return held

    def _forgotten(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Called in whichever thread dropped the last reference."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and we with it
            loop.call_soon_threadsafe(self._close, number)

    def _close(self, number: int) -> None:
        folder = self._open.pop(number, None)
        if folder is not None:
            self._tasks.spawn(folder.aclose(), name="close a folder of tools")

    async def aclose(self) -> None:
        """Close all of them, held or not; may be called again."""
        folders, self._open = list(self._open.values()), {}
        await asyncio.gather(*(folder.aclose() for folder in folders))
        await self._tasks.drain(CLOSE_SECONDS)


class _HeldFolder(LoadedFolder):
    def __init__(self, folder: LoadedFolder) -> None:
        self._folder = folder
        self.description = folder.description

    def must_wait(self, session_id: str) -> bool:
        return self._folder.must_wait(session_id)

    def slot(self, name: str, context: ToolContext) -> AbstractAsyncContextManager[object]:
        return self._folder.slot(name, context)

    async def call(self, name: str, arguments: JSONObject) -> str:
        return await self._folder.call(name, arguments)

    async def aclose(self) -> None:
        await self._folder.aclose()
