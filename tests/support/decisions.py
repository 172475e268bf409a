"""Persons of tests, who decide about calls of tools."""

from __future__ import annotations

from .server import Server
from .waiting import until


async def decide_next(server: Server, *, approved: bool) -> str:
    """Wait until a call waits for a person, decide, and return the name of its tool."""
    _, listed = await until(
        lambda: server.get("/confirmations"), lambda answer: answer[1]["confirmations"]
    )
    waiting = listed["confirmations"][0]
    path = f"/confirmations/{waiting['confirmation_id']}"
    status, _ = await server.post(path, {"approved": approved})
    assert status == 200
    return waiting["tool_name"]
