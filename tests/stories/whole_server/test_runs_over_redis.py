"""Runs of two servers that share a Redis, and a folder of sessions or nothing else."""

from __future__ import annotations

import asyncio
import base64
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.redis import Redis, needs_redis, running_redis
from tests.support.server import Server, running_server
from tests.support.sse import ServerEvent, events
from tests.support.tools import write_tools

WORDS = [f"{number} " for number in range(2000)]
PAUSE = 0.01
"""Seconds between two words."""

SECONDS = 60

WRITE = '''
from pathlib import Path


def write(text: str) -> str:
    """Write a line.

    Args:
        text: The line.
    """
    with (Path(__file__).parent.parent / "written").open("a") as file:
        file.write(f"{text}\\n")
    return "written"


__all__ = ["write"]
'''

pytestmark = [needs_redis, pytest.mark.slow]


@dataclass
class Reader:
    """A client that reads a run."""

    run_id: str = ""
    events: list[ServerEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return "".join(e.data["content"] for e in self.events if e.event == "content_delta")

    @property
    def kinds(self) -> list[str]:
        return [event.event for event in self.events]

    async def send(self, server: Server, session_id: str, **fields: Any) -> None:
        path = f"{server.api}/chat/{session_id}/stream"
        body = {"message": "Go.", **fields}
        async with server.http.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            self.run_id = response.headers["X-Run-Id"]
            await self._read(response)

    async def join(self, server: Server, run_id: str, after: int = 0) -> None:
        self.run_id = run_id
        path = f"{server.api}/runs/{run_id}/events?after={after}"
        async with server.http.get(path) as response:
            assert response.status == 200, await response.text()
            await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        async for event in events(response.content.iter_any()):
            self.events.append(event)
            self.changed.set()

    async def has(self, kind: str) -> ServerEvent:
        """Wait for an event of this kind."""
        with anyio.fail_after(SECONDS):
            while True:
                self.changed.clear()
                for event in self.events:
                    if event.event == kind:
                        return event
                await self.changed.wait()

    async def has_more(self, count: int) -> None:
        """Wait for so many more words."""
        end = len(self.text.split()) + count
        with anyio.fail_after(SECONDS):
            while len(self.text.split()) < end:
                self.changed.clear()
                await self.changed.wait()

    def check_order(self) -> None:
        numbers = [int(event.id or 0) for event in self.events]
        assert numbers == sorted(set(numbers))
        assert self.kinds.count("done") == 1
        assert self.kinds[-1] == "done"


@dataclass
class Pair:
    """The two servers."""

    folder: Path
    redis: Redis
    ollama: FakeOllama
    one: Server
    two: Server
    sessions_in_redis: bool = False

    async def until_free(self, session_id: str) -> None:
        """Wait until no turn holds the session."""
        status = 409
        with anyio.fail_after(SECONDS):
            while status == 409:
                await anyio.sleep(0.1)
                status, _ = await self.two.post(f"/sessions/{session_id}/variants/none/select")
        assert status == 404  # there is no such variant

    async def asked_at_two(self, session_id: str) -> str:
        """Send a message to the second server; return what the model gets as the first one."""
        self.ollama.reply(["Yes."])
        status, answer = await self.two.post(f"/chat/{session_id}", {"message": "Again?"})
        assert status == 200, answer
        content: str = self.ollama.chats[-1]["messages"][0]["content"]
        return content

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        status, session = await self.two.get(f"/sessions/{session_id}")
        assert status == 200, session
        messages: list[dict[str, Any]] = session["messages"]
        return messages


in_files_and_in_redis = pytest.mark.parametrize("pair", ["json", "redis"], indirect=True)


@pytest.fixture
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path, ollama: FakeOllama
) -> AsyncIterator[Pair]:
    ollama.one_at_a_time = False
    storage = getattr(request, "param", "json")
    folders = [tmp_path, tmp_path if storage == "json" else tmp_path / "of another machine"]
    for folder in {*folders}:
        write_tools(folder / "tools", init=WRITE)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(running_redis(tmp_path))
        settings = {"session_storage": storage, "redis_url": redis.url}
        one, two = [
            await stack.enter_async_context(
                running_server(data_dir=folder, ollama=ollama, **settings)
            )
            for folder in folders
        ]
        yield Pair(tmp_path, redis, ollama, one, two, storage == "redis")
        assert "Traceback" not in two.log, two.log


async def begin(pair: Pair, words: list[str] = WORDS) -> tuple[str, Reader, asyncio.Future[None]]:
    """Begin a run at the first server; return its session, its reader, and the reading."""
    pair.ollama.reply(words, delay=PAUSE)
    reader, session_id = Reader(), await pair.one.new_session()
    reading = asyncio.ensure_future(reader.send(pair.one, session_id))
    await reader.has("content_delta")
    return session_id, reader, reading


@in_files_and_in_redis
async def test_a_run_is_read_at_the_other_server_and_goes_on_while_it_is(pair: Pair) -> None:
    _, first, reading = await begin(pair)
    second = Reader()
    along = asyncio.ensure_future(second.join(pair.two, first.run_id))
    await second.has("content_delta")
    reading.cancel()  # the one who began it leaves
    await second.has_more(100)
    status, run = await pair.two.get(f"/runs/{first.run_id}")
    assert (status, run["state"]) == (200, "running")
    late = Reader()
    after = int(second.events[20].id or 0)
    joined = asyncio.ensure_future(late.join(pair.two, first.run_id, after))
    await late.has("content_delta")
    assert pair.ollama.disconnects == 0
    along.cancel()
    joined.cancel()  # nobody reads it any more, at any server
    await pair.ollama.disconnected()
    with anyio.fail_after(SECONDS):
        while (await pair.two.get(f"/runs/{first.run_id}"))[1]["state"] != "stopped":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    words = "".join(WORDS)
    assert words.startswith(second.text)
    whole = Reader()
    await whole.join(pair.two, first.run_id)
    whole.check_order()
    assert whole.text.startswith(second.text)
    assert int(late.events[0].id or 0) > after


@in_files_and_in_redis
async def test_a_run_is_stopped_at_the_other_server(pair: Pair) -> None:
    session_id, first, reading = await begin(pair)
    second = Reader()
    along = asyncio.ensure_future(second.join(pair.two, first.run_id))
    await second.has("content_delta")
    with anyio.fail_after(SECONDS):
        answers = [await pair.two.post(f"/runs/{first.run_id}/stop") for _ in range(2)]
        answers.append(await pair.one.post(f"/chat/{session_id}/stop"))
        await pair.ollama.disconnected()
        await asyncio.gather(reading, along)
    assert answers[0] == answers[1] == answers[2]
    status, answer = answers[0]
    assert (status, answer["state"]) == (200, "stopped")
    assert answer["message"]["interrupted"] is True
    assert answer["message"]["content"] == first.text == second.text
    for reader in (first, second):
        reader.check_order()
    listed = (await pair.two.get("/runs"))[1]["runs"]
    assert [(run["run_id"], run["state"]) for run in listed] == [(first.run_id, "stopped")]


@in_files_and_in_redis
async def test_a_run_goes_on_when_its_call_is_confirmed_at_the_other_server(pair: Pair) -> None:
    pair.ollama.reply(tool_calls=[{"name": "write", "arguments": {"text": "Hello"}}])
    pair.ollama.reply(["Written."])
    settings = {"tools": ["write"], "execution_policy": "always_confirm"}
    reader, session_id = Reader(), await pair.one.new_session(tool_settings=settings)
    reading = asyncio.ensure_future(reader.send(pair.one, session_id))
    asked = await reader.has("tool_call_confirmation_required")
    status, run = await pair.two.get(f"/runs/{reader.run_id}")
    assert (status, run["state"]) == (200, "waiting")
    second = Reader()
    along = asyncio.ensure_future(second.join(pair.two, reader.run_id))
    confirmation = asked.data["confirmation_id"]
    assert (await second.has("tool_call_confirmation_required")).id == asked.id
    status, _ = await pair.two.post(f"/confirmations/{confirmation}", {"approved": True})
    assert status == 200
    with anyio.fail_after(SECONDS):
        await asyncio.gather(reading, along)
    assert [(e.id, e.event, e.data) for e in second.events][1:] == [
        (e.id, e.event, e.data) for e in reader.events
    ][1:]
    assert reader.text == "Written."
    assert (pair.folder / "written").read_text() == "Hello\n"


async def test_the_run_of_a_killed_server_is_ended_and_kept(pair: Pair) -> None:
    session_id, first, reading = await begin(pair)
    second = Reader()
    along = asyncio.ensure_future(second.join(pair.two, first.run_id))
    await second.has_more(50)
    await pair.one.stop(signal.SIGKILL)
    await asyncio.gather(reading, return_exceptions=True)
    with anyio.fail_after(SECONDS):
        await along
    second.check_order()
    assert second.kinds[-2:] == ["error", "done"]
    assert second.events[-2].data["code"] == "RUN_INTERRUPTED"
    status, run = await pair.two.get(f"/runs/{first.run_id}")
    assert (status, run["state"], run["code"]) == (200, "interrupted", "RUN_INTERRUPTED")
    question, answer = await pair.messages(session_id)
    assert question["content"] == "Go."
    assert answer["interrupted"] is True
    assert answer["content"] == second.text
    assert answer["message_id"] == run["message_id"]
    assert first.text.startswith(answer["content"])
    again = Reader()
    await again.join(pair.two, first.run_id)
    again.check_order()
    assert (again.text, again.kinds[0]) == (second.text, "run_start")
    pair.ollama.forget()
    pair.ollama.reply(["Well."])
    last = Reader()
    await last.send(pair.two, session_id)
    assert (last.text, last.kinds[-1]) == ("Well.", "done")
    assert [m["content"] for m in await pair.messages(session_id)] == [
        *("Go.", second.text, "Go.", "Well.")
    ]


@in_files_and_in_redis
async def test_the_next_message_after_a_kill_waits_for_the_lease(pair: Pair) -> None:
    session_id, first, reading = await begin(pair)
    await first.has_more(50)
    await pair.one.stop(signal.SIGKILL)
    await asyncio.gather(reading, return_exceptions=True)
    pair.ollama.forget()
    pair.ollama.reply(["Well."])
    if pair.sessions_in_redis:
        await pair.until_free(session_id)
    last = Reader()
    await last.send(pair.two, session_id)
    assert (last.text, last.kinds[-1]) == ("Well.", "done")
    question, partial, *rest = await pair.messages(session_id)
    assert (question["content"], partial["interrupted"]) == ("Go.", True)
    assert first.text.startswith(partial["content"])
    assert [m["content"] for m in rest] == ["Go.", "Well."]


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_each_request_of_a_conversation_may_go_to_another_machine(pair: Pair) -> None:
    servers = itertools.cycle([pair.one, pair.two])
    session_id = await next(servers).new_session()
    for number in range(4):
        pair.ollama.reply([f"Answer {number}."])
        status, answer = await next(servers).post(f"/chat/{session_id}", {"message": f"{number}?"})
        assert (status, answer["message"]["content"]) == (200, f"Answer {number}.")
    server = next(servers)
    status, _ = await server.request("PATCH", f"/sessions/{session_id}", {"title": "Mine"})
    assert status == 200
    for server in (pair.one, pair.two):
        _, listed = await server.get("/sessions")
        assert [(s["session_id"], s["title"]) for s in listed["sessions"]] == [(session_id, "Mine")]
        assert len(await pair.messages(session_id)) == 8
    status, fork = await next(servers).post(f"/sessions/{session_id}/fork", {})
    assert status == 201, fork
    assert (await next(servers).request("DELETE", f"/sessions/{session_id}"))[0] == 204
    assert (await next(servers).get(f"/sessions/{session_id}"))[0] == 404
    assert (await next(servers).get(f"/sessions/{fork['session_id']}"))[0] == 200


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_a_file_is_at_the_machine_that_has_taken_it_unless_they_share_the_folder(
    pair: Pair,
) -> None:
    session_id = await pair.one.new_session()
    note = {"data": base64.b64encode(b"Buy milk.").decode(), "name": "note.txt"}
    pair.ollama.reply(["Milk."])
    body = {"message": "What?", "attachments": [note]}
    status, answer = await pair.one.post(f"/chat/{session_id}", body)
    assert status == 200, answer
    assert await pair.asked_at_two(session_id) == (
        "[Attachment: note.txt, text/plain. Its content is not here.]\n\nWhat?"
    )
    shared = pair.folder / "of another machine" / "attachments"
    shared.symlink_to(pair.folder / "attachments")
    assert "\nBuy milk.\n" in await pair.asked_at_two(session_id)


async def test_turns_go_on_while_redis_is_away(pair: Pair) -> None:
    session_id, first, reading = await begin(pair, WORDS[:200])
    second = Reader()
    along = asyncio.ensure_future(second.join(pair.two, first.run_id))
    await second.has("content_delta")
    await pair.redis.stop()
    pair.ollama.reply(["New."])
    new, new_session = Reader(), await pair.one.new_session()
    with anyio.fail_after(SECONDS):
        await new.send(pair.one, new_session)
    assert (new.text, new.kinds[-1]) == ("New.", "done")
    status, answer = await pair.two.get(f"/runs/{new.run_id}")
    assert (status, answer["error"]["code"]) == (507, "STORAGE_ERROR")
    with anyio.fail_after(SECONDS):  # what health says may be some seconds old
        while (await pair.one.get("/health"))[1]["redis_connected"]:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    with anyio.fail_after(SECONDS):
        await reading
    assert first.text == "".join(WORDS[:200])
    await pair.redis.start()
    with anyio.fail_after(SECONDS):
        await along
    assert second.text == first.text
    assert second.kinds[-1] == "done"
    assert [m["content"] for m in await pair.messages(session_id)] == ["Go.", first.text]
    again = Reader()
    await again.join(pair.two, new.run_id)
    assert again.kinds == new.kinds
