"""What the parts of ``/ws/chat`` know of each other."""

from __future__ import annotations

from typing import Protocol

from mochi_server.core.aio import BackgroundTasks
from mochi_server.errors import JSONObject

from .commands import Commands


class Socket(Protocol):
    """An open socket."""

    commands: Commands

    async def tell(self, event: str, data: JSONObject) -> None:
        """Send an event that belongs to no run."""

    async def stop(self, seconds: float) -> None:
        """Close it when its runs have said that they end, or after so many seconds."""


class Sockets(Protocol):
    """All sockets of this process."""

    tasks: BackgroundTasks

    async def add(self, socket: Socket) -> None:
        """Add a socket that was accepted."""

    def remove(self, socket: Socket) -> None:
        """Remove a socket that is closed."""
