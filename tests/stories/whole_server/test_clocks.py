"""Servers whose clocks jump or differ; docs/explanation/reliability.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.testing import call, instructions, text
from tests.support import clocks
from tests.support.redis import Redis, needs_redis, running_redis
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.sockets import ready_socket
from tests.support.tools import write_tools
from tests.support.waiting import until

MODEL = "test/any"
SECONDS = 60
WORDS_PER_SECOND = 40
DAY = 24 * 3600
JUMPS = [-30, 30]
"""Hours: the day changes, too."""

TOOLS = '''
def note(what: str) -> str:
    """Note something.

    Args:
        what: What is noted.
    """
    return f"noted {what}"


__all__ = ["note"]
'''

pytestmark = pytest.mark.slow

needs_jumps = pytest.mark.skipif(
    clocks.lack_of_jumps() is not None, reason=f"no time jumps: {clocks.lack_of_jumps()}"
)
needs_offsets = pytest.mark.skipif(
    clocks.lack_of_offsets() is not None, reason=f"no clocks differ: {clocks.lack_of_offsets()}"
)


class Place:
    """A data folder with a tool, the storage of its sessions, and the time of day of a server."""

    def __init__(self, folder: Path, redis: Redis | None) -> None:
        self.folder = folder
        self.time = clocks.TimeOfDay(folder)
        self.settings: dict[str, Any] = {"test_words_per_second": WORDS_PER_SECOND}
        if redis is not None:
            self.settings |= {"session_storage": "redis", "redis_url": redis.url}
        write_tools(folder / "tools", init=TOOLS)

    def server(self, **settings: Any) -> Any:
        return running_server(data_dir=self.folder, **self.settings | settings)

    def jumping_server(self, **settings: Any) -> Any:
        """A server with ``time`` as its time of day."""
        return self.server(command=self.time.command, **settings)


@pytest_asyncio.fixture(params=["files", pytest.param("redis", marks=needs_redis)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        redis = None
        if request.param == "redis":
            redis = await stack.enter_async_context(running_redis(tmp_path))
        folder = tmp_path / "data"
        folder.mkdir()
        yield Place(folder, redis)


def saying(words: int) -> str:
    return instructions(text(length=words))


async def begin(server: Server, message: str) -> tuple[RunReader, asyncio.Future[None]]:
    """Begin a turn in a new session."""
    reader = RunReader(await server.new_session(MODEL, tool_settings={"tools": ["note"]}))
    reading = asyncio.ensure_future(reader.send(server, message))
    return reader, reading


async def speaks(reader: RunReader) -> None:
    with anyio.fail_after(SECONDS):
        await reader.said.wait()


async def ask(server: Server, answer: str = "It is noted.") -> tuple[RunReader, Any, str]:
    """Begin a turn that asks, and return its reader and the id of the question."""
    calls = instructions(call("note", what="this"), then=[[text(exactly=answer)]])
    reader, reading = await begin(server, calls)
    asked = await reader.has("tool_call_confirmation_required")
    return reader, reading, asked.data["confirmation_id"]


async def waiting(server: Server) -> list[str]:
    status, listed = await server.get("/confirmations")
    assert status == 200, listed
    return [each["confirmation_id"] for each in listed["confirmations"]]


async def approve(server: Server, confirmation_id: str) -> None:
    status, answer = await server.post(f"/confirmations/{confirmation_id}", {"approved": True})
    assert status == 200, answer


async def completes(reader: RunReader, reading: Any, ending: str) -> None:
    with anyio.fail_after(SECONDS):
        await reading
    reader.check_whole()
    assert reader.kinds[-2:] == ["message_complete", "done"]
    assert reader.text.endswith(ending)


@needs_jumps
async def test_a_turn_goes_on_and_keeps_its_session(place: Place) -> None:
    async with place.jumping_server() as server, place.server() as other:
        known = {await server.new_session(MODEL)}
        for hours in JUMPS:
            reader, reading = await begin(server, saying(6 * WORDS_PER_SECOND))
            await speaks(reader)
            place.time.jump(hours=hours)
            path, body, refused = f"/chat/{reader.session_id}", {"message": saying(1)}, 0
            while (answer := await other.post(path, body))[0] != 200:
                assert (answer[0], answer[1]["error"]["code"]) == (409, "SESSION_BUSY")
                refused += 1
                await anyio.sleep(0.2)
            assert refused
            await completes(reader, reading, "")
            _, session = await other.get(f"/sessions/{reader.session_id}")
            replies = [each["content"] for each in session["messages"][1::2]]
            assert [len(each.split()) for each in replies] == [6 * WORDS_PER_SECOND, 1]
            assert replies[0] == reader.text

            known |= {reader.session_id, await server.new_session(MODEL)}
            for each in known:
                for at in (server, other):
                    status, answer = await at.post(f"/chat/{each}", {"message": saying(2)})
                    assert status == 200, answer
            for at in (server, other):
                _, listed = await at.get("/sessions")
                assert listed["problems"] == []
                assert {each["session_id"] for each in listed["sessions"]} == known
        assert "Traceback" not in server.log + other.log


@needs_jumps
async def test_messages_that_wait_at_two_processes_are_answered_in_their_order(
    place: Place,
) -> None:
    async with place.jumping_server() as server, place.server() as other:
        for hours in JUMPS:
            reader, reading, question = await ask(server)
            path, asked = f"/chat/{reader.session_id}/runs", []
            for at in (other, server, other):
                asked.append(f"{len(asked)} {saying(1)}")
                body = {"message": asked[-1], "when_busy": "queue"}
                status, run = await at.post(path, body)
                assert (status, run["state"]) == (202, "queued")
                place.time.jump(hours=hours)
            await approve(server, question)
            await completes(reader, reading, "It is noted.")
            messages = f"/sessions/{reader.session_id}/messages"
            _, found = await until(
                lambda path=messages: server.get(path),
                lambda answer: len(answer[1]["messages"]) == 10,
            )
            assert [each["content"] for each in found["messages"][4::2]] == asked
            place.time.jump(hours=0)


@needs_jumps
async def test_a_question_waits_as_long_as_it_should(place: Place) -> None:
    async with place.jumping_server() as server, place.server() as other:
        for hours in JUMPS:
            reader, reading, question = await ask(server)
            assert await waiting(other) == [question]
            place.time.jump(hours=hours)
            for at in (server, other, server):
                assert await waiting(at) == [question]
            await approve(server, question)
            await completes(reader, reading, "It is noted.")

            reader, reading, question = await ask(server)
            place.time.jump(hours=0)
            assert await waiting(server) == [question]
            await approve(server, question)
            await completes(reader, reading, "It is noted.")


@needs_jumps
async def test_a_question_does_not_stay_for_ever(place: Place) -> None:
    async with place.jumping_server(tool_confirmation_timeout_seconds=3) as server:
        for hours in JUMPS:
            reader, reading, _ = await ask(server, "Then not.")
            place.time.jump(hours=hours)
            await completes(reader, reading, "Then not.")
            (result,) = [event.data for event in reader.events if event.event == "tool_result"]
            assert "nobody confirmed the call within 3 seconds" in str(result)
            assert await waiting(server) == []


@needs_jumps
async def test_a_question_from_before_a_restart_does_not_stay_for_ever(place: Place) -> None:
    place.time.jump(hours=30)
    async with place.jumping_server(tool_confirmation_timeout_seconds=5) as server:
        reader, reading, _ = await ask(server, "Then not.")
        server.process.kill()
        await server.process.wait()
        await reading
    place.time.jump(hours=0)
    async with place.jumping_server(tool_confirmation_timeout_seconds=5) as server:
        with anyio.fail_after(SECONDS):
            await until(lambda: waiting(server), lambda answer: not answer)
            status = 0
            while "done" not in reader.kinds:
                status = await reader.go_on(server)
                assert status == 200
        assert reader.text.endswith("Then not.")


@needs_offsets
async def test_processes_have_monotonic_clocks_that_differ(place: Place) -> None:
    """As of two machines, or of two containers in time namespaces."""
    ahead = clocks.with_monotonic_clock(DAY)
    async with place.server() as one, place.server(command=ahead) as two:
        for asks, decides in ((one, two), (two, one)):
            reader, reading, question = await ask(asks)
            assert await waiting(decides) == [question]
            busy = await decides.post(f"/chat/{reader.session_id}", {"message": saying(1)})
            assert busy[0] == 409
            await approve(decides, question)
            await completes(reader, reading, "It is noted.")
        reader, reading, question = await ask(two)
        two.process.kill()
        await two.process.wait()
        await reading
        await approve(one, question)
        with anyio.fail_after(SECONDS):
            while "done" not in reader.kinds:
                assert await reader.go_on(one) == 200
        assert reader.text.endswith("It is noted.")
        assert "Traceback" not in one.log + two.log


@needs_jumps
async def test_a_socket_is_sent_the_runs_that_others_begin(place: Place) -> None:
    async with place.jumping_server() as server, place.server() as other:
        for hours in JUMPS:
            place.time.jump(hours=0)
            session_id = await server.new_session(MODEL)
            path, body = f"/chat/{session_id}/runs", {"message": saying(1)}
            assert (await server.post(f"/chat/{session_id}", body))[0] == 200
            async with ready_socket(server, session_id=session_id) as client:
                place.time.jump(hours=hours)
                begun = []
                for at in (server, other):
                    status, answer = await at.post(path, body)
                    assert status == 202, answer
                    begun.append(answer["run_id"])
                    while not client.is_done(begun[-1]):
                        await client.next()
                seen = [each["run_id"] for each in client.frames if each["event"] == "run_start"]
                assert seen == begun
