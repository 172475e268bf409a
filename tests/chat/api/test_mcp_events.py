"""``/mcp/events``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from mochi_project.runtime import get_runtime
from mochi_server.tools.mcp.servers import feed
from tests.support.mcp import SECONDS, Wire, tool, write_config
from tests.support.sse import ServerEvent, events
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("ollama_url")


async def test_servers_that_come_change_and_go_are_told(
    api: Any, mochi: Any, settings: Any, tmp_path: Path
) -> None:
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("token")})
    old = Wire(tmp_path / "old", tools=[tool("read")])
    write_config(mochi.data_dir, old=old.entry())
    response = await api.get("/mcp/events")
    received = events(response.streaming_content)

    async def until(kind: str, **data: Any) -> ServerEvent:
        with anyio.fail_after(SECONDS):
            async for event in received:
                if event.event == kind and event.data.items() >= data.items():
                    return event
        raise AssertionError("the stream has ended")

    new = Wire(tmp_path / "new", tools=[tool("read")])
    added = await api.post("/mcp/add", {"name": "new", "config": new.entry()})
    assert added.status_code == 201, added.content
    first = await until("mcp_added", server="new")
    if first.data["state"] != "ready":  # it starts as soon as it is added
        await until("mcp_state", server="new", state="ready", last_error=None)
    new.plan(start="exit")
    await api.post("/mcp/new/restart")
    await until("mcp_state", server="new", state="failed")
    write_config(mochi.data_dir, old=old.entry())  # as an editor, or another process, does
    await until("mcp_removed", server="new", state=None)
    old.plan(tools=[tool("read"), tool("write")])
    await api.post("/tools/reload")
    await until("tools_changed", server="old", state="ready")
    get_runtime().stop()
    with anyio.fail_after(SECONDS):
        assert [event async for event in received] == []


async def test_a_restart_between_two_looks_is_told(
    api: Any, mochi: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has asked in between believes that the server is starting."""
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("token")})
    monkeypatch.setattr(feed, "LOOK_SECONDS", 5.0)  # a restart takes less
    write_config(mochi.data_dir, wire=Wire(tmp_path / "wire", tools=[tool("read")]).entry())

    async def until_ready() -> None:
        await until(
            lambda: api.get("/mcp/servers"),
            lambda answer: answer.json()["servers"]["wire"]["state"] == "ready",
        )

    assert (await api.post("/mcp/wire/restart")).status_code == 200
    await until_ready()
    response = await api.get("/mcp/events")
    received = events(response.streaming_content)
    assert (await api.post("/mcp/wire/restart")).status_code == 200
    await until_ready()
    with anyio.fail_after(SECONDS):
        async for event in received:
            if event.event == "mcp_state" and event.data["state"] == "ready":
                break
        else:
            raise AssertionError("the stream has ended")
    get_runtime().stop()
