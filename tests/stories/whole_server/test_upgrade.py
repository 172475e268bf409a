"""A server stops, starts again, or stops while others go on, perhaps of another version."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from mochi_server.sessions import JSONFileStorage
from tests.support.fake_ollama import FakeOllama
from tests.support.redis import free_port
from tests.support.run_readers import RunReader
from tests.support.server import ROOT, Server, environment, run_command, running_server
from tests.support.tools import write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("fresh_servers")

SECONDS = 60
OTHER = "9.8.7"
MAIN = "from mochi_server.__main__ import main; sys.exit(main(sys.argv[1:]))"
AS_ANOTHER_VERSION = f"import mochi_server.version as own, sys; own.__version__ = {OTHER!r}; {MAIN}"


class Talk:
    """A run at one server that ends when the gate opens, and its reader."""

    def __init__(self, ollama: FakeOllama) -> None:
        self.gate = asyncio.Event()
        self._ollama = ollama

    async def begin(self, server: Server) -> RunReader:
        self._ollama.reply(["Once", " upon", " a time"], pause_after=2, gate=self.gate)
        self.reader = RunReader(await server.new_session())
        self.reading = asyncio.ensure_future(self.reader.send(server, "Go on."))
        await self.reader.said.wait()
        return self.reader


@asynccontextmanager
async def two_servers(folder: Path, ollama: FakeOllama) -> AsyncIterator[tuple[Server, Server]]:
    """The second one says that it is of another version."""
    command = ("-c", AS_ANOTHER_VERSION, "--port", "0")
    async with (
        running_server(data_dir=folder, ollama=ollama) as one,
        running_server(data_dir=folder, ollama=ollama, command=command) as other,
    ):
        yield one, other


async def status_of(server: Server, path: str) -> int | None:
    """The status of an answer; None where nobody listens."""
    try:
        return (await server.get(path))[0]
    except aiohttp.ClientConnectionError:
        return None


async def until_status(server: Server, path: str, status: int) -> None:
    await until(lambda: status_of(server, path), lambda answer: answer == status)


async def test_running_turns_finish_while_the_server_is_not_ready_any_more(
    tmp_path: Path, ollama: FakeOllama
):
    async with running_server(data_dir=tmp_path, ollama=ollama, drain_seconds=60) as server:
        talk = Talk(ollama)
        reader = await talk.begin(server)
        other = await server.new_session()
        server.process.send_signal(signal.SIGTERM)

        await until_status(server, "/health/ready", 503)
        assert await status_of(server, "/health/live") == 200
        async with server.http.post(
            f"{server.api}/chat/{other}", json={"message": "Too late."}
        ) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "3")
            assert (await answer.json())["error"]["code"] == "SHUTTING_DOWN"

        talk.gate.set()
        with anyio.fail_after(SECONDS):
            await talk.reading
            assert await server.process.wait() == 0
        reader.check_whole()
        assert reader.text == "Once upon a time"
        assert reader.kinds[-2:] == ["message_complete", "done"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_turns_at_once(
    tmp_path: Path, ollama: FakeOllama, number: signal.Signals
):
    async with running_server(data_dir=tmp_path, ollama=ollama, drain_seconds=600) as server:
        talk = Talk(ollama)
        reader = await talk.begin(server)
        server.process.send_signal(signal.SIGTERM)
        await until_status(server, "/health/ready", 503)
        assert await server.stop(number) in {0, 128 + number, -number}
        with anyio.fail_after(SECONDS):
            await talk.reading
        assert reader.kinds[-2:] == ["error", "done"]
        assert reader.events[-2].data["code"] == "SHUTTING_DOWN"
        assert reader.text == "Once upon"


async def test_turns_that_take_longer_are_ended_and_kept(tmp_path: Path, ollama: FakeOllama):
    async with running_server(data_dir=tmp_path, ollama=ollama, drain_seconds=0.5) as server:
        talk = Talk(ollama)
        reader = await talk.begin(server)
        assert await server.stop() == 0
        with anyio.fail_after(SECONDS):
            await talk.reading
        assert reader.kinds[-2:] == ["error", "done"]
        stored = json.loads((tmp_path / "chat_sessions" / f"{reader.session_id}.json").read_bytes())
        assert stored["messages"][-1]["content"] == "Once upon"


async def test_without_time_to_shut_down_a_partial_reply_is_kept_all_the_same(
    tmp_path: Path, ollama: FakeOllama
):
    """Also when its save takes longer than the server waits for connections: here somebody else
    is just editing the session."""
    ollama.reply(["Hal", "lo"], gate=asyncio.Event(), pause_after=1)
    async with running_server(data_dir=tmp_path, ollama=ollama, shutdown_seconds=0) as server:
        session_id = await server.new_session()
        gone = (aiohttp.ClientError, ProcessLookupError)  # between two events that had come
        with anyio.fail_after(60), contextlib.suppress(*gone):
            async for event in server.stream(f"/chat/{session_id}/stream", {"message": "Hi"}):
                if event.event != "content_delta":
                    continue
                async with JSONFileStorage(tmp_path / "chat_sessions").lock(session_id):
                    os.kill(server.pid, signal.SIGTERM)
                    await server.saw("graceful shutdown exceeded")
                    await anyio.sleep(0.2)  # nothing is printed where it would end too early
        with anyio.fail_after(100):
            assert await server.process.wait() == 0
    stored = json.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_text())
    assert [message["content"] for message in stored["messages"]] == ["Hi", "Hal"]
    assert stored["messages"][1]["interrupted"] is True


async def test_a_reader_goes_on_at_another_process_when_its_own_stops(
    tmp_path: Path, ollama: FakeOllama
):
    async with two_servers(tmp_path, ollama) as (one, other):
        talk = Talk(ollama)
        reader = await talk.begin(one)
        along = RunReader(reader.session_id, reader.run_id)
        reading = asyncio.ensure_future(along.go_on(other))
        with anyio.fail_after(SECONDS):
            await along.said.wait()
            assert await other.stop() == 0
            assert await reading == 200
            assert "done" not in along.kinds  # the run goes on: a browser connects again
            talk.gate.set()
            await along.go_on(one)
            await talk.reading
        along.check_whole()
        assert along.text == reader.text == "Once upon a time"


def as_with_another_catalogue(folder: Path) -> tuple[str, ...]:
    """Arguments of Python that start a copy of the server whose catalogue has another form."""
    copy = folder / "mochi_server"
    shutil.copytree(ROOT / "mochi_server", copy, ignore=shutil.ignore_patterns("__pycache__"))
    code = copy / "sessions" / "catalogue" / "database.py"
    form = re.compile(r"^SCHEMA_VERSION = \d+$", re.MULTILINE)
    text, count = form.subn("SCHEMA_VERSION = 99", code.read_text())
    assert count == 1
    code.write_text(text)
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); {MAIN}"
    return ("-c", start, "--port", "0")


@pytest.mark.slow
async def test_two_versions_have_a_catalogue_each_until_one_is_gone(
    tmp_path: Path, ollama: FakeOllama
):
    folder = tmp_path / "data"
    folder.mkdir()

    def files() -> dict[str, int]:
        found = folder.glob(".mochi/sessions-*/catalogue-*.sqlite3")
        return {path.name: path.stat().st_ino for path in found}

    async def listed(server: Server) -> set[str]:
        status, page = await server.get("/sessions")
        assert status == 200, page
        return {each["session_id"] for each in page["sessions"]}

    command = as_with_another_catalogue(tmp_path / "other")
    async with (
        running_server(data_dir=folder, ollama=ollama) as one,
        running_server(data_dir=folder, ollama=ollama, command=command) as other,
    ):
        made = {await one.new_session()}
        assert await listed(one) == await listed(other) == made
        before = files()
        assert len(before) == 2
        for server in (one, other, one, other):
            made.add(await server.new_session())
            for each in (one, other):
                await until(partial(listed, each), lambda sessions: sessions == made)
        assert files() == before

        other.process.kill()
        await other.process.wait()
        await until(lambda: not [*folder.glob(".mochi/sessions-*/catalogue-99*")])
        assert len(files()) == 1
        assert files().items() < before.items()
        assert await listed(one) == made


@pytest.mark.slow
async def test_doctor_names_the_versions_of_the_processes(tmp_path: Path, ollama: FakeOllama):
    async def findings() -> list[Any]:
        values = environment(data_dir=tmp_path, ollama_host=ollama.url, models_dir=tmp_path / "m")
        ended = await run_command("doctor", "--json", cwd=tmp_path, env=values)
        report = json.loads(ended.out)
        return [
            (each["level"], each["what"])
            for each in report["findings"]
            if each["topic"] == "several processes"
        ]

    async with two_servers(tmp_path, ollama) as (one, other):
        level, text = (await findings())[-1]
        assert level == "warning"
        assert f"mochi-server {OTHER} (process {other.pid})" in text
        assert f"(process {one.pid})" in text
        other.process.kill()
        await other.process.wait()
        level, text = (await findings())[-1]
        assert (level, OTHER in text, str(one.pid) in text) == ("ok", False, True)
    assert (await findings())[-1] == ("ok", "No server uses the data folder now.")


TOOL = '''
import os
from pathlib import Path

__all__ = ["leave_a_program"]


def leave_a_program() -> str:
    """Start a program that outlives everything."""
    place = Path(__file__).with_name("pid")
    os.system(f"setsid sh -c 'echo $$ > {place}; exec sleep 300' > /dev/null 2>&1 &")
    while not (place.exists() and place.read_text().strip()):
        pass
    return "It runs."
'''


async def test_a_server_can_start_again_though_a_tool_has_left_a_program(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=TOOL)
    settings = {"tools": ["leave_a_program"], "execution_policy": "never_confirm"}
    pid = None
    try:
        async with FakeOllama() as ollama:
            port = ("--port", str(free_port()))
            async with running_server(data_dir=tmp_path, ollama=ollama, arguments=port) as server:
                session = await server.new_session(tool_settings=settings)
                ollama.reply(tool_calls=[{"name": "leave_a_program", "arguments": {}}])
                ollama.reply(["Done."])
                status, answer = await server.post(f"/chat/{session}", {"message": "Leave one"})
                assert status == 200, answer
                assert answer["tool_calls_executed"][0]["result"] == "It runs."
                pid = int((tmp_path / "tools" / "pid").read_text())
                await server.stop()
            async with running_server(data_dir=tmp_path, ollama=ollama, arguments=port) as server:
                assert server.url.endswith(f":{port[1]}")
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
