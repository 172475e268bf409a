"""A person stops a run: the model is let go, what it said is kept, all readers end.

How soon is measured by ``benchmarks/runs.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.waiting import until

STREAMS = 100
WORDS = [f"{number} " for number in range(10_000)]
PAUSE = 0.05
"""Seconds between two words: 2000 words a second of all streams."""

pytestmark = pytest.mark.slow


class Stream:
    """A run, the one who began it, and perhaps somebody who reads it at the other server."""

    def __init__(self, ollama: FakeOllama, session_id: str) -> None:
        self.session_id = session_id
        self.message = f"Go, {session_id}."
        self.said = ollama.reply(WORDS, delay=PAUSE, match=self.message)
        self.reader = RunReader(session_id)
        self.along = RunReader(session_id)

    async def read_along(self, other: Server) -> None:
        await self.reader.said.wait()
        self.along.run_id = self.reader.run_id
        await self.along.go_on(other)

    async def stop(self, server: Server) -> Any:
        """Stop it, and wait until the connection to the model is closed."""
        status, answer = await server.post(f"/runs/{self.reader.run_id}/stop")
        assert status == 200, answer
        await until(lambda: self.said.left is not None)
        return answer

    def check(self, answer: Any, stored: list[dict[str, Any]]) -> None:
        """The answer carries what the session and every reader have."""
        assert answer["state"] == "stopped"
        question, message = stored
        assert answer["message"] == message
        assert question["content"] == self.message
        assert message["interrupted"] is True
        for reader in (self.reader, self.along):
            if reader.events:
                reader.check_whole()
                assert reader.text == message["content"]
        assert message["content"] == "".join(WORDS[: len(message["content"].split())])


@asynccontextmanager
async def many(ollama: FakeOllama, one: Server, other: Server) -> AsyncIterator[list[Stream]]:
    """A hundred streams of one server in which the model speaks; the block is to stop all."""
    streams = [Stream(ollama, await one.new_session()) for _ in range(STREAMS)]
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(stream.reader.send, one, stream.message)
            for stream in streams[::10]:
                tasks.start_soon(stream.read_along, other)
            for stream in streams:
                await stream.reader.said.wait()
            for stream in streams[::10]:
                await stream.along.said.wait()
            yield streams


async def stored(server: Server, stream: Stream) -> list[dict[str, Any]]:
    status, body = await server.get(f"/sessions/{stream.session_id}/messages")
    assert status == 200, body
    return body["messages"]


async def test_each_of_a_hundred_streams_is_stopped_one_after_another(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """At the process that runs it, and at another one."""
    ollama.one_at_a_time = False
    async with (
        running_server(data_dir=tmp_path, ollama=ollama) as one,
        running_server(data_dir=tmp_path, ollama=ollama) as other,
    ):
        answers = []
        async with many(ollama, one, other) as streams:
            for number, stream in enumerate(streams):
                answers.append(await stream.stop(one if number % 2 else other))
        for number, (stream, answer) in enumerate(zip(streams, answers, strict=True)):
            stream.check(answer, await stored(other, stream))
            assert await stream.stop(other if number % 4 else one) == answer


@pytest.mark.parametrize("where", ["the same process", "another process"])
async def test_a_hundred_streams_are_stopped_together(
    tmp_path: Path, ollama: FakeOllama, where: str
) -> None:
    ollama.one_at_a_time = False
    async with (
        running_server(data_dir=tmp_path, ollama=ollama) as one,
        running_server(data_dir=tmp_path, ollama=ollama) as other,
    ):
        server = one if where == "the same process" else other
        async with many(ollama, one, other) as streams:
            answers = await asyncio.gather(*(stream.stop(server) for stream in streams))
        for stream, answer in zip(streams, answers, strict=True):
            stream.check(answer, await stored(other, stream))
