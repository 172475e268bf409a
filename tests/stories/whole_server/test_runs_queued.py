"""Runs that wait in the queue of one process, as clients of another one see them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.postgresql import needs_postgresql, running_postgresql
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.waiting import until

SECONDS = 60

KINDS = ["folder", pytest.param("postgresql", marks=needs_postgresql)]


class Pair:
    """Two servers; a run goes on at the first one, and others wait there for its end."""

    def __init__(self, ollama: FakeOllama, one: Server, other: Server) -> None:
        self.ollama, self.one, self.other = ollama, one, other
        self.gate = asyncio.Event()
        self.session_id = ""

    async def begin(self) -> RunReader:
        self.ollama.reply(["So", " on"], pause_after=1, gate=self.gate)
        self.session_id = await self.one.new_session()
        return await self.accepted("First.", "running")

    async def accepted(self, message: str, state: str = "queued") -> RunReader:
        body = {"message": message, "when_busy": "queue"}
        status, answer = await self.one.post(f"/chat/{self.session_id}/runs", body)
        assert (status, answer["state"]) == (202, state)
        return RunReader(self.session_id, answer["run_id"])

    async def state(self, run_id: str) -> Any:
        status, answer = await self.other.get(f"/runs/{run_id}")
        assert status == 200, answer
        return answer["state"]

    async def queued(self) -> list[str]:
        """The runs that wait, as the other server lists them."""
        _, answer = await self.other.get("/runs", params={"state": "queued"})
        return [run["run_id"] for run in answer["runs"]]

    async def asked(self) -> list[str]:
        _, session = await self.other.get(f"/sessions/{self.session_id}")
        return [m["content"] for m in session["messages"] if m["role"] == "user"]


@asynccontextmanager
async def running_pair(folder: Path, ollama: FakeOllama, kind: str) -> AsyncIterator[Pair]:
    ollama.one_at_a_time = False
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {}
        if kind == "postgresql":
            settings["database_url"] = (await stack.enter_async_context(running_postgresql())).url
        one, other = [
            await stack.enter_async_context(
                running_server(data_dir=folder, ollama=ollama, **settings)
            )
            for _ in range(2)
        ]
        with anyio.fail_after(SECONDS):
            yield Pair(ollama, one, other)


@pytest.mark.parametrize("kind", KINDS)
async def test_another_process_lists_joins_and_stops_them(
    tmp_path: Path, ollama: FakeOllama, kind: str
) -> None:
    async with running_pair(tmp_path, ollama, kind) as pair:
        first = await pair.begin()
        second, third = await pair.accepted("Second."), await pair.accepted("Third.")
        assert await pair.queued() == [second.run_id, third.run_id]
        assert await pair.state(second.run_id) == "queued"
        joined = [asyncio.ensure_future(each.go_on(pair.other)) for each in (second, third)]
        status, answer = await pair.other.post(f"/runs/{third.run_id}/stop")
        assert (status, answer["state"], answer["message"]) == (200, "stopped", None)
        assert await joined[1] == 200
        assert third.kinds == ["run_start", "done"]
        assert (await pair.one.post(f"/runs/{third.run_id}/stop"))[1] == answer
        assert await pair.queued() == [second.run_id]
        assert await pair.state(first.run_id) == "running"
        pair.ollama.reply(["Two."])
        pair.gate.set()
        assert await joined[0] == 200
        second.check_whole()
        assert second.text == "Two."
        assert int(second.events[0].id or 0) > 10**9
        assert await pair.state(second.run_id) == "done"
        assert await pair.queued() == []
        assert await pair.asked() == ["First.", "Second."]


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_are_answered_in_the_order_in_which_they_were_accepted(
    tmp_path: Path, ollama: FakeOllama, kind: str
) -> None:
    async with running_pair(tmp_path, ollama, kind) as pair:
        await pair.begin()
        messages, last = ["First."], None
        for number, server in enumerate([pair.other, pair.one, pair.one, pair.other, pair.one]):
            messages.append(f"m{number}")
            body = {"message": messages[-1], "when_busy": "queue"}
            status, last = await server.post(f"/chat/{pair.session_id}/runs", body)
            assert (status, last["state"]) == (202, "queued")
        assert last is not None
        pair.gate.set()
        await RunReader(pair.session_id, last["run_id"]).go_on(pair.other)
        assert await pair.asked() == messages


@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_process_leaves_them_interrupted(
    tmp_path: Path, ollama: FakeOllama, kind: str
) -> None:
    async with running_pair(tmp_path, ollama, kind) as pair:
        first = await pair.begin()
        second = await pair.accepted("Second.")
        along = asyncio.ensure_future(second.go_on(pair.other))
        await until(pair.queued)
        await pair.one.stop(signal.SIGKILL)
        assert await along == 200
        assert second.kinds == ["run_start", "error", "done"]
        assert second.events[1].data["code"] == "RUN_INTERRUPTED"
        assert await pair.state(second.run_id) == "interrupted"
        assert await first.go_on(pair.other) == 200
        assert first.kinds[-2:] == ["error", "done"]
        assert await pair.asked() == ["First."]
        pair.ollama.reply(["Again."])
        pair.ollama.reply(["And again."])
        reader = RunReader(pair.session_id)
        await reader.send(pair.other, "Third.")
        assert reader.text


async def test_an_id_is_known_to_all_as_soon_as_it_is_given(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """And one that was never given is refused without a look for it later."""
    async with running_pair(tmp_path, ollama, "folder") as pair:
        session_id = await pair.one.new_session()
        path = f"{pair.one.api}/chat/{session_id}/stream"
        for number in range(20):
            async with pair.one.http.post(path, json={"message": f"{number}"}) as response:
                assert await pair.state(response.headers["X-Run-Id"]) in {"running", "done"}
                await response.read()
        with anyio.fail_after(30):
            for _ in range(30):
                assert (await pair.other.get("/runs/run_0123456789abcdef"))[0] == 404
