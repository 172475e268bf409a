"""Workers whose supervisor was killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.tool_folders import is_gone, until

OURS: dict[str, Any] = {"workers": 2}
UVICORN: dict[str, Any] = {
    "command": ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0", "--workers", "2"),
    "ready": re.compile(r"running on (http://\S+)[\s\S]*startup complete"),
}


async def children_of(pid: int) -> list[int]:
    """The processes that it has started."""
    done = await anyio.run_process(["pgrep", "-P", str(pid)])
    return [int(line) for line in done.stdout.split()]


async def half_an_answer(server: Server, ollama: FakeOllama, session: str) -> list[str]:
    """The names of the events of a stream whose server is killed in the middle."""
    names = []
    with anyio.fail_after(60):
        async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi"}):
            names.append(event.event)
            if event.event == "content_delta":
                server.process.send_signal(signal.SIGKILL)
    return names


@pytest.mark.parametrize("options", [OURS, UVICORN], ids=["mochi-server", "uvicorn"])
async def test_workers_end_in_order_when_their_supervisor_is_killed(
    tmp_path: Path, ollama: FakeOllama, options: dict[str, Any]
) -> None:
    ollama.reply(["one", "two"], gate=asyncio.Event(), pause_after=1)
    workers: list[int] = []
    async with running_server(data_dir=tmp_path, ollama=ollama, **options) as server:
        try:
            session = await server.new_session()
            workers = await children_of(server.pid)
            names = await half_an_answer(server, ollama, session)
            await until(lambda: all(map(is_gone, workers)), seconds=30)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with pytest.raises(aiohttp.ClientConnectionError):
            await server.get("/health")
    assert len(workers) >= 2
    assert names[-1] != "content_delta"
    stored = json.loads((tmp_path / "chat_sessions" / f"{session}.json").read_text())
    assert stored["messages"][-1]["content"] == "one"
