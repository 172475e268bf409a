"""A server that has as much to do as it may have refuses what is beyond, and does the rest."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.sockets import address_of, ready_socket
from tests.support.sse import ServerEvent, events
from tests.support.waiting import until
from tests.support.wires import HELLO, hello

REQUESTS, QUEUED = 100, 10
"""Bounds of requests, of sockets and of queues where there are so few runs."""
RUNS = 4
MODEL = "qwen3:14b"
AT_ONCE_SECONDS = 100.0
"""A hundred refusals together, on a machine that has other things to do."""


@pytest_asyncio.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    """A service that answers all at the same time."""
    async with FakeOllama(one_at_a_time=False) as server:
        yield server


def memory_of(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Talk:
    """A streamed turn that goes on until its gate is opened."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self._events: AsyncIterator[ServerEvent] = events(response.content.iter_any())

    async def begun(self) -> None:
        while (await anext(self._events)).event != "content_delta":
            pass

    async def rest(self) -> list[str]:
        return [event.event async for event in self._events]


class Crowd:
    """A server with few slots, and clients who hold them."""

    def __init__(self, server: Server, ollama: FakeOllama) -> None:
        self.server, self.ollama = server, ollama
        self.gate = asyncio.Event()

    async def talk(self, stack: AsyncExitStack, caller: str | None = None) -> Talk:
        """Begin a turn that does not end before the gate is open."""
        self.ollama.reply(["So", " on"], pause_after=1, gate=self.gate)
        session_id = await self.server.new_session()
        response = await stack.enter_async_context(self._post(session_id, caller))
        assert response.status == 200, await response.text()
        talk = Talk(response)
        await talk.begun()
        return talk

    async def refused(self, caller: str | None = None, session_id: str | None = None) -> Any:
        """Check that one more turn is refused at once, and return the error."""
        session_id = session_id or await self.server.new_session()
        async with self._post(session_id, caller) as response:
            assert response.status == 503, await response.text()
            assert response.headers["Retry-After"] == "1"
            error = (await response.json())["error"]
        assert error["code"] == "SERVER_BUSY"
        assert error["details"]["retry_after"] == 1
        return error

    async def accepted(self) -> None:
        """Check that a turn begins and ends as usual, as soon as a slot is free."""
        session_id = await self.server.new_session()
        body = {"message": f"Hello, {session_id}."}
        self.ollama.reply(["Fine."], match=body["message"])
        status, answer = await until(
            lambda: self.server.post(f"/chat/{session_id}", body), lambda answer: answer[0] != 503
        )
        assert (status, answer["message"]["content"]) == (200, "Fine.")

    def _post(self, session_id: str, caller: str | None) -> Any:
        headers = {} if caller is None else {"X-Forwarded-For": caller}
        return self.server.http.post(
            f"{self.server.api}/chat/{session_id}/stream",
            json={"message": "Go on."},
            headers=headers,
        )


@asynccontextmanager
async def crowd(folder: Path, ollama: FakeOllama, **settings: Any) -> AsyncIterator[Crowd]:
    settings = {"max_runs": RUNS, "max_caller_share": 1, "trusted_proxies": "127.0.0.1", **settings}
    async with running_server(data_dir=folder, ollama=ollama, **settings) as server:
        yield Crowd(server, ollama)


@asynccontextmanager
async def full(folder: Path, ollama: FakeOllama) -> AsyncIterator[tuple[Crowd, list[Talk]]]:
    """A server all of whose runs are taken."""
    async with crowd(folder, ollama) as some, AsyncExitStack() as stack:
        yield some, [await some.talk(stack) for _ in range(RUNS)]


@pytest.mark.slow
async def test_runs_beyond_the_bound_are_refused_at_once_and_the_others_go_on(
    tmp_path: Path, ollama: FakeOllama
):
    async with full(tmp_path, ollama) as (some, talks):
        sessions = [await some.server.new_session() for _ in range(100)]
        asked = len(ollama.chats)
        began = time.monotonic()
        await asyncio.gather(*(some.refused(session_id=each) for each in sessions))

        assert time.monotonic() - began < AT_ONCE_SECONDS
        assert len(ollama.chats) == asked
        _, session = await some.server.get(f"/sessions/{sessions[0]}")
        assert session["messages"] == []
        some.gate.set()
        for talk in talks:
            assert (await talk.rest())[-2:] == ["message_complete", "done"]
        await some.accepted()


async def test_wires_refuse_in_their_own_shape_and_keep_nothing(tmp_path: Path, ollama: FakeOllama):
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01"}
    async with full(tmp_path, ollama) as (some, _):
        _, before = await some.server.get("/sessions")
        own = {"message": "Hi", "session_id": "new-one", "model": MODEL}
        for path, body in {
            **{path: hello(path, MODEL) for path in HELLO},
            "/api/v1/chat": own,
        }.items():
            async with some.server.http.post(
                some.server.url + path, json=body, headers=headers
            ) as response:
                assert response.status == 503, await response.text()
                assert response.headers["Retry-After"] == "1"
                error = (await response.json())["error"]
            text = error if path == "/ollama/api/chat" else error["message"]
            assert "runs at the same time" in text, path
        _, after = await some.server.get("/sessions")
        assert len(after["sessions"]) == len(before["sessions"])
        some.gate.set()


async def test_slots_come_back_whatever_ends_a_run(tmp_path: Path, ollama: FakeOllama):
    async with crowd(tmp_path, ollama, max_runs=1) as some:
        async with AsyncExitStack() as stack:  # its client leaves
            await some.talk(stack)
            await some.refused()
        await some.accepted()

        status, _ = await some.server.post("/chat/0123456789", {"message": "Nobody is there."})
        assert status == 404
        await some.accepted()

        ollama.reply(error="It broke.")
        session_id = await some.server.new_session()
        status, _ = await some.server.post(f"/chat/{session_id}", {"message": "It fails."})
        assert status == 502
        await some.accepted()

        async with AsyncExitStack() as stack:  # a person stops it
            talk = await some.talk(stack)
            run_id = talk.response.headers["X-Run-Id"]
            status, _ = await some.server.post(f"/runs/{run_id}/stop")
            assert status == 200
            assert (await talk.rest())[-1] == "done"
            await some.accepted()


async def test_one_caller_has_at_most_its_share(tmp_path: Path, ollama: FakeOllama):
    async with (
        crowd(tmp_path, ollama, max_caller_share=0.5) as some,
        AsyncExitStack() as stack,
    ):
        for _ in range(RUNS // 2):
            await some.talk(stack, caller="10.0.0.1")
        error = await some.refused(caller="10.0.0.1")
        assert error["details"]["limit"] == RUNS // 2
        for _ in range(RUNS // 2):
            await some.talk(stack, caller="10.0.0.2")
        error = await some.refused(caller="10.0.0.3")
        assert error["details"]["limit"] == RUNS
        some.gate.set()


async def test_runs_in_queues_are_bounded_and_run_when_there_is_room(
    tmp_path: Path, ollama: FakeOllama
):
    async with (
        crowd(tmp_path, ollama, max_runs=1) as some,
        AsyncExitStack() as stack,
    ):
        talk = await some.talk(stack)
        _, run = await some.server.get(f"/runs/{talk.response.headers['X-Run-Id']}")
        path = f"/chat/{run['session_id']}/runs"
        words = [f"word {number}." for number in range(QUEUED)]
        for word in words:
            ollama.reply([word], match=word)
        # The session is in use, and so is the only slot of a run.
        answers = [
            await some.server.post(path, {"message": word, "when_busy": "queue"})
            for word in [*words, "Too many"]
        ]
        assert [status for status, _ in answers] == [*[202] * QUEUED, 503]
        some.gate.set()
        assert (await talk.rest())[-1] == "done"
        for _, answer in answers[:QUEUED]:
            names = [
                each.event async for each in some.server.events(f"/runs/{answer['run_id']}/events")
            ]
            assert names[-2:] == ["message_complete", "done"]
        await some.accepted()


async def test_requests_beyond_the_bound_are_refused_and_health_is_not(
    tmp_path: Path, ollama: FakeOllama
):
    async with (
        crowd(tmp_path, ollama) as some,
        AsyncExitStack() as stack,
    ):
        url = f"{some.server.api}/confirmations/events"
        readers: list[Any] = []
        with anyio.fail_after(100):
            while len(readers) < REQUESTS:  # when it starts, the server itself asks for its models
                reader = await stack.enter_async_context(some.server.http.get(url))
                if reader.status == 200:
                    readers.append(reader)

        async with some.server.http.get(f"{some.server.api}/sessions") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert (await response.json())["error"]["code"] == "SERVER_BUSY"
        assert (await some.server.get("/health/live"))[0] == 200

        readers[0].close()
        await until(lambda: some.server.get("/sessions"), lambda answer: answer[0] == 200)


async def test_sockets_beyond_the_bound_are_refused_and_say_when_to_come_back(
    tmp_path: Path, ollama: FakeOllama
):
    async with crowd(tmp_path, ollama) as some, AsyncExitStack() as stack:
        async with ready_socket(some.server, model=MODEL) as client, AsyncExitStack() as others:
            for _ in range(REQUESTS - 1):
                await others.enter_async_context(connect(address_of(some.server)))
            with pytest.raises(InvalidStatus) as refused:
                async with connect(address_of(some.server)):
                    pass
            response = refused.value.response
            assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
            assert json.loads(response.body)["error"]["code"] == "SERVER_BUSY"

            for _ in range(RUNS):
                await some.talk(stack)
            answer = await client.ask("message", {"message": "Hi"})
            assert (answer["event"], answer["data"]["code"]) == ("error", "SERVER_BUSY")

        async def is_accepted() -> bool:
            with suppress(InvalidStatus):
                async with connect(address_of(some.server)):
                    return True
            return False

        await until(is_accepted)
        some.gate.set()


@pytest.mark.slow
async def test_a_flood_takes_no_memory(tmp_path: Path, ollama: FakeOllama):
    async with full(tmp_path, ollama) as (some, talks):
        session_id = await some.server.new_session()

        async def flood(times: int) -> None:
            for _ in range(times):
                await some.refused(session_id=session_id)

        async def flood_by_many(times: int) -> int:
            await asyncio.gather(*(flood(times) for _ in range(50)))
            return memory_of(some.server.pid)

        before = await flood_by_many(10)
        assert await flood_by_many(60) - before < 8_000_000
        some.gate.set()
        for talk in talks:
            assert (await talk.rest())[-1] == "done"
