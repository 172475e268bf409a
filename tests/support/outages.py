"""Servers of sessions that restart, and processes that wait for them on a busy machine, too."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mochi_server.core import outages
from mochi_server.sessions import SessionManager

from .postgresql import PostgreSQL
from .redis import Redis

WAITS_LONG = (
    "-c",
    (
        "import sys; from mochi_server.core import outages; outages.OUTAGE_SECONDS = 100.0; "
        "from mochi_server.__main__ import main; sys.exit(main(sys.argv[1:]))"
    ),
    *("--port", "0"),
)
"""Arguments of Python that start a server which waits for restarts that take long."""


async def change_during_restart(
    sessions: SessionManager, server: Redis | PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change a session while its server restarts; it has the change afterwards."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 30.0)  # a busy machine
    kept = await sessions.create("m")
    await server.stop()
    change = asyncio.ensure_future(
        sessions.update(kept.session_id, lambda session: session.metadata.label(title="T"))
    )
    await server.start()
    with anyio.fail_after(30):
        await change
    assert (await sessions.get(kept.session_id)).metadata.title == "T"
    await sessions.aclose()
