"""Persons of tests, who decide about calls of tools."""

from __future__ import annotations

import anyio

from .server import Server


async def decide_next(server: Server, *, approved: bool) -> str:
    """Wait until a call waits for a person, decide, and return the name of its tool."""
    with anyio.fail_after(30):
        while True:
            _, listed = await server.get("/confirmations")
            if listed["confirmations"]:
                break
            await anyio.sleep(0.02)
    waiting = listed["confirmations"][0]
    path = f"/confirmations/{waiting['confirmation_id']}"
    status, _ = await server.post(path, {"approved": approved})
    assert status == 200
    return waiting["tool_name"]
