"""What becomes of the session that a first message makes, where the model then fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.raw import RawClient, dropped
from tests.support.tools import function, write_tools
from tests.support.waiting import until

MODEL = "qwen3:14b"
ASK = {"message": "Hello", "model": MODEL}


async def goes_on(server, ollama, session_id):
    """Whether the message is there, and can be answered after all."""
    ollama.reply(["Whole."])
    status, answer = await server.post(f"/chat/{session_id}", {})
    assert status == 200, answer
    _, found = await server.get(f"/sessions/{session_id}/messages")
    return [message["content"] for message in found["messages"]] == ["Hello", "Whole."]


async def test_an_error_names_the_session_that_it_leaves_if_it_leaves_one(
    server_of, tmp_path, ollama
):
    write_tools(tmp_path / "tools", init=f'__all__ = ["wave"]\n{function("wave")}')
    async with server_of(ollama=ollama) as server:
        ollama.reply(["Half"], error="out of memory")
        status, answer = await server.post("/chat", ASK)
        assert (status, answer["error"]["code"]) == (502, "OLLAMA_ERROR")
        assert await goes_on(server, ollama, answer["error"]["details"]["session_id"])
        for tools in (None, ["wave"]):
            ollama.reply(["Half"], error="out of memory")
            body = {**ASK, "selected_tools": tools}
            *_, last = [event async for event in server.stream("/chat/stream", body)]
            assert (last.event, last.data["code"]) == ("error", "OLLAMA_ERROR")
            assert await goes_on(server, ollama, last.data["details"]["session_id"])
        status, answer = await server.post("/chat", {**ASK, "model": "nobody:1b"})
        assert status == 404
        assert "session_id" not in answer["error"]["details"]


@pytest.mark.parametrize("route", ["/chat", "/chat/stream"])
@pytest.mark.parametrize("session_id", ["../x", "", "a b", "x" * 65, "é", "line\n", "\x00"])
async def test_an_id_that_no_session_can_have_is_not_found_and_makes_nothing(
    api, mochi, route, session_id
):
    response = await api.post(route, {**ASK, "session_id": session_id})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "SESSION_NOT_FOUND")
    assert error["details"] == {"session_id": session_id}
    assert (await api.get("/sessions")).json()["sessions"] == []
    assert not list(mochi.data_dir.rglob("*x*"))


LONG_IMPORT = """
import time
from pathlib import Path

while not Path({place!r}).exists():
    time.sleep(0.01)
"""


async def sessions_of(server, *, number):
    """Wait until there are so many."""
    await until(
        lambda: server.get("/sessions"), lambda answer: len(answer[1]["sessions"]) == number
    )


async def test_a_client_that_leaves_before_its_turn_begins_leaves_no_empty_session(
    server_of, tmp_path: Path, ollama
):
    go = tmp_path / "go"
    before = LONG_IMPORT.format(place=str(go))
    write_tools(tmp_path / "tools", init=f'{before}\n__all__ = ["wave"]\n{function("wave")}')
    async with server_of(ollama=ollama) as server:
        body = {**ASK, "selected_tools": ["wave"]}
        client = await RawClient.post(server.url, "/chat/stream", body)
        await sessions_of(server, number=1)
        client.hang_up()
        await sessions_of(server, number=0)
        go.touch()


SLOW_STORAGE = """
import anyio

from mochi_server.sessions.storage.json_files import JSONFileStorage


class SlowStorage(JSONFileStorage):
    async def create(self, session_id, parts):
        version = await super().create(session_id, parts)
        while not await anyio.Path({place!r}).exists():
            await anyio.sleep(0.01)
        return version
"""

SETTINGS = """
from mochi_project.settings import *

MOCHI_SESSION_STORAGES["default"]["BACKEND"] = "slow_storage.SlowStorage"
"""

STARTER = """
import os, sys

os.environ["DJANGO_SETTINGS_MODULE"] = "slow_settings"
sys.path.insert(0, {folder!r})

from mochi_server.__main__ import main

sys.exit(main())
"""


@pytest.mark.parametrize("route", ["/chat", "/chat/stream"])
async def test_a_client_that_leaves_while_its_session_is_made_leaves_no_empty_session(
    server_of, tmp_path: Path, ollama, route
):
    go = tmp_path / "go"
    (tmp_path / "slow_storage.py").write_text(SLOW_STORAGE.format(place=str(go)))
    (tmp_path / "slow_settings.py").write_text(SETTINGS)
    command = ("-c", STARTER.format(folder=str(tmp_path)), "--port", "0")
    async with server_of(ollama=ollama, command=command) as server:
        client = await RawClient.post(server.url, route, ASK)
        await sessions_of(server, number=1)
        client.hang_up()
        await dropped(client.port)
        go.touch()
        await sessions_of(server, number=0)
