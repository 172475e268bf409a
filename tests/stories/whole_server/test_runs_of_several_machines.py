"""Runs of two servers that share a PostgreSQL and a Redis, and a folder of sessions or none."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.redis import Redis, needs_redis, running_redis
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.sockets import ready_socket
from tests.support.tools import write_tools
from tests.support.waiting import until

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

pytestmark = [needs_redis, needs_postgresql, pytest.mark.slow]


@dataclass
class Pair:
    """The two servers."""

    folder: Path
    redis: Redis
    database: PostgreSQL
    ollama: FakeOllama
    one: Server
    two: Server
    sessions_in_redis: bool = False

    async def until_free(self, session_id: str) -> None:
        """Wait until no turn holds the session."""
        path = f"/sessions/{session_id}/variants/none/select"
        status, _ = await until(lambda: self.two.post(path), lambda answer: answer[0] != 409)
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
        database = await stack.enter_async_context(running_postgresql())
        settings = {
            "session_storage": storage,
            "redis_url": redis.url,
            "database_url": database.url,
        }
        one, two = [
            await stack.enter_async_context(
                running_server(data_dir=folder, ollama=ollama, **settings)
            )
            for folder in folders
        ]
        yield Pair(tmp_path, redis, database, ollama, one, two, storage == "redis")
        assert "Traceback" not in two.log, two.log


async def begin(
    pair: Pair, words: list[str] = WORDS, **reply: Any
) -> tuple[RunReader, asyncio.Future[None]]:
    """Begin a run at the first server; return its reader, and the reading."""
    pair.ollama.reply(words, delay=PAUSE, **reply)
    reader = RunReader(await pair.one.new_session())
    reading = asyncio.ensure_future(reader.send(pair.one, "Go."))
    await reader.has("content_delta")
    return reader, reading


def another(reader: RunReader) -> RunReader:
    """A reader of the same run, from its beginning."""
    return RunReader(reader.session_id, reader.run_id)


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_a_message_that_is_refused_leaves_the_session_to_the_run_that_goes_on(
    pair: Pair,
) -> None:
    """The lease of its claim is over, as where a slow machine has not renewed it in time."""
    reader, reading = await begin(pair, WORDS[:300])
    await pair.redis.command(f"DEL mochi:sessions:claim:{reader.session_id}")
    status, answer = await pair.two.post(f"/chat/{reader.session_id}", {"message": "And I?"})
    assert (status, answer["error"]["code"]) == (409, "SESSION_BUSY")
    await reading
    assert reader.kinds[-2:] == ["message_complete", "done"], reader.events[-3:]
    [_, said] = await pair.messages(reader.session_id)
    assert said["content"] == "".join(WORDS[:300])


@in_files_and_in_redis
async def test_a_run_is_read_at_the_other_server_and_goes_on_while_it_is(pair: Pair) -> None:
    first, reading = await begin(pair)
    second = another(first)
    along = asyncio.ensure_future(second.go_on(pair.two))
    await second.has("content_delta")
    reading.cancel()  # the one who began it leaves
    await second.has_more(100)
    status, run = await pair.two.get(f"/runs/{first.run_id}")
    assert (status, run["state"]) == (200, "running")
    late = another(first)
    late.events = second.events[:20]  # as one that was cut off then
    joined = asyncio.ensure_future(late.go_on(pair.two))
    await late.has_more(1)
    assert pair.ollama.disconnects == 0
    along.cancel()
    joined.cancel()  # nobody reads it any more, at any server
    await pair.ollama.disconnected()
    await until(
        lambda: pair.two.get(f"/runs/{first.run_id}"),
        lambda answer: answer[1]["state"] == "stopped",
    )
    words = "".join(WORDS)
    assert words.startswith(second.text)
    whole = another(first)
    await whole.go_on(pair.two)
    whole.check_whole()
    assert whole.text.startswith(second.text)
    assert whole.text.startswith(late.text)
    numbers = [int(event.id or 0) for event in late.events]
    assert numbers == sorted(set(numbers))


@in_files_and_in_redis
async def test_a_run_is_stopped_at_the_other_server(pair: Pair) -> None:
    first, reading = await begin(pair)
    second = another(first)
    along = asyncio.ensure_future(second.go_on(pair.two))
    await second.has("content_delta")
    with anyio.fail_after(SECONDS):
        answers = [await pair.two.post(f"/runs/{first.run_id}/stop") for _ in range(2)]
        answers.append(await pair.one.post(f"/chat/{first.session_id}/stop"))
        await pair.ollama.disconnected()
        await asyncio.gather(reading, along)
    assert answers[0] == answers[1] == answers[2]
    status, answer = answers[0]
    assert (status, answer["state"]) == (200, "stopped")
    assert answer["message"]["interrupted"] is True
    assert answer["message"]["content"] == first.text == second.text
    for reader in (first, second):
        reader.check_whole()
    listed = (await pair.two.get("/runs"))[1]["runs"]
    assert [(run["run_id"], run["state"]) for run in listed] == [(first.run_id, "stopped")]


@pytest.mark.parametrize("by", ["request", "socket"])
@in_files_and_in_redis
async def test_a_run_goes_on_when_its_call_is_confirmed_at_the_other_server(
    pair: Pair, by: str
) -> None:
    pair.ollama.reply(tool_calls=[{"name": "write", "arguments": {"text": "Hello"}}])
    pair.ollama.reply(["Written."])
    settings = {"tools": ["write"], "execution_policy": "always_confirm"}
    reader = RunReader(await pair.one.new_session(tool_settings=settings))
    reading = asyncio.ensure_future(reader.send(pair.one, "Go."))
    asked = await reader.has("tool_call_confirmation_required")
    status, run = await pair.two.get(f"/runs/{reader.run_id}")
    assert (status, run["state"]) == (200, "waiting")
    second = another(reader)
    along = asyncio.ensure_future(second.go_on(pair.two))
    assert (await second.has("tool_call_confirmation_required")).id == asked.id
    if by == "socket":
        async with ready_socket(pair.two, session_id=reader.session_id) as client:
            decision = {"callId": asked.data["tool_call_id"], "approved": True}
            reply = await client.ask("tool:approval", decision)
        assert reply["event"] == "reply", reply
    else:
        confirmation = asked.data["confirmation_id"]
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
    first, reading = await begin(pair)
    second = another(first)
    along = asyncio.ensure_future(second.go_on(pair.two))
    await second.has_more(50)
    await pair.one.stop(signal.SIGKILL)
    await asyncio.gather(reading, return_exceptions=True)
    with anyio.fail_after(SECONDS):
        await along
    second.check_whole()
    assert second.kinds[-2:] == ["error", "done"]
    assert second.events[-2].data["code"] == "RUN_INTERRUPTED"
    status, run = await pair.two.get(f"/runs/{first.run_id}")
    assert (status, run["state"], run["code"]) == (200, "interrupted", "RUN_INTERRUPTED")
    question, answer = await pair.messages(first.session_id)
    assert question["content"] == "Go."
    assert answer["interrupted"] is True
    assert answer["content"] == second.text
    assert answer["message_id"] == run["message_id"]
    words = "".join(WORDS)
    assert words.startswith(first.text)  # either may have what the kill has taken from the other
    assert words.startswith(answer["content"])
    again = another(first)
    await again.go_on(pair.two)
    again.check_whole()
    assert (again.text, again.kinds[0]) == (second.text, "run_start")
    pair.ollama.forget()
    pair.ollama.reply(["Well."])
    last = RunReader(first.session_id)
    await last.send(pair.two, "Go.")
    assert (last.text, last.kinds[-1]) == ("Well.", "done")
    assert [m["content"] for m in await pair.messages(first.session_id)] == [
        *("Go.", second.text, "Go.", "Well.")
    ]


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_a_call_that_another_machine_has_given_up_does_not_run_late(pair: Pair) -> None:
    """The first machine stands still between the note of a call and the call, within a write."""
    pair.ollama.reply(tool_calls=[{"name": "write", "arguments": {"text": "Hello"}}])
    pair.ollama.reply(["It may be written."])
    settings = {"tools": ["write"], "execution_policy": "always_confirm"}
    reader = RunReader(await pair.one.new_session(tool_settings=settings))
    reading = asyncio.ensure_future(reader.send(pair.one, "Go."))
    asked = await reader.has("tool_call_confirmation_required")
    async with await psycopg.AsyncConnection.connect(pair.database.url) as connection:
        await connection.execute("LOCK TABLE state_lines")  # of decisions that were acted on
        confirmation = asked.data["confirmation_id"]
        status, _ = await pair.one.post(f"/confirmations/{confirmation}", {"approved": True})
        assert status == 200
        await until(lambda: pair.database.query("SELECT pid FROM pg_locks WHERE NOT granted"))
        os.kill(pair.one.pid, signal.SIGSTOP)
    try:
        path = f"/runs/{reader.run_id}"
        await until(lambda: pair.two.get(path), lambda answer: answer[1].get("state") == "done")
    finally:
        os.kill(pair.one.pid, signal.SIGCONT)
    await reading
    reader.check_whole()
    assert reader.kinds[-2:] == ["message_complete", "done"], reader.events[-2:]
    _, _, result, answer = await pair.messages(reader.session_id)
    assert result["content"] == "Error: the call was interrupted before it had a result."
    assert answer["content"] == "It may be written."
    assert not (pair.folder / "written").exists()


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_readers_at_a_server_that_stood_still_read_on_where_the_run_has_gone_on(
    pair: Pair,
) -> None:
    """And a stop, or a message, at that server is for the run as it is now."""
    for text in ("one", "two"):
        pair.ollama.reply(tool_calls=[{"name": "write", "arguments": {"text": text}}])
    settings = {"tools": ["write"], "execution_policy": "always_confirm"}
    reader = RunReader(await pair.one.new_session(tool_settings=settings))
    reading = asyncio.ensure_future(reader.send(pair.one, "Go."))
    asked = await reader.has("tool_call_confirmation_required")
    os.kill(pair.one.pid, signal.SIGSTOP)
    try:
        decision = f"/confirmations/{asked.data['confirmation_id']}"
        status, _ = await pair.two.post(decision, {"approved": True})
        assert status == 200
        await until(lambda: pair.ollama.chats, lambda chats: len(chats) == 2)
        path = f"/runs/{reader.run_id}"
        await until(lambda: pair.two.get(path), lambda answer: answer[1]["state"] == "waiting")
    finally:
        os.kill(pair.one.pid, signal.SIGCONT)
    await until(lambda: reader.kinds.count("tool_call_confirmation_required") == 2)
    status, answer = await pair.one.post(f"/chat/{reader.session_id}", {"message": "More."})
    assert (status, answer["error"]["code"]) == (409, "SESSION_BUSY")
    status, run = await pair.one.post(f"{path}/stop")
    assert (status, run["state"]) == (200, "stopped")
    with anyio.fail_after(SECONDS):
        await reading
    reader.check_whole()
    assert reader.kinds[-1] == "done"
    assert "error" not in reader.kinds
    late = another(reader)
    await late.go_on(pair.two)
    everything = {event.id: event.event for event in late.events}
    assert {event.id: everything.get(event.id) for event in reader.events} == {
        event.id: event.event for event in reader.events
    }
    assert (pair.folder / "of another machine" / "written").read_text() == "one\n"


@pytest.mark.parametrize("pair", ["redis"], indirect=True)
async def test_what_a_model_said_while_its_server_stood_still_is_shown_to_nobody(
    pair: Pair,
) -> None:
    """The other server has ended the run, and stored what was said before."""
    gate = asyncio.Event()
    reply = pair.ollama.reply(WORDS[:200], pause_after=20, gate=gate)
    first = RunReader(await pair.one.new_session())
    reading = asyncio.ensure_future(first.send(pair.one, "Go."))
    await first.until_written(pair.two, words=20)
    os.kill(pair.one.pid, signal.SIGSTOP)
    try:
        path = f"/runs/{first.run_id}"
        await until(lambda: pair.two.get(path), lambda answer: answer[1]["state"] == "interrupted")
        gate.set()
        await until(lambda: len(reply.sent) == 200)
    finally:
        os.kill(pair.one.pid, signal.SIGCONT)
    with anyio.fail_after(SECONDS):
        await reading
    first.check_whole()
    _, answer = await pair.messages(first.session_id)
    assert first.text == answer["content"] == "".join(WORDS[:20])
    assert first.events[-2].data["code"] == "RUN_INTERRUPTED"


@in_files_and_in_redis
async def test_the_next_message_after_a_kill_waits_for_the_lease(pair: Pair) -> None:
    gate = asyncio.Event()  # the run does not end before the kill, however busy the machine is
    first, reading = await begin(pair, pause_after=len(WORDS) // 2, gate=gate)
    await first.until_written(pair.two)
    await pair.one.stop(signal.SIGKILL)
    gate.set()
    await asyncio.gather(reading, return_exceptions=True)
    pair.ollama.forget()
    pair.ollama.reply(["Well."])
    if pair.sessions_in_redis:
        await pair.until_free(first.session_id)
    last = RunReader(first.session_id)
    await last.send(pair.two, "Go.")
    assert (last.text, last.kinds[-1]) == ("Well.", "done")
    question, partial, *rest = await pair.messages(first.session_id)
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


async def test_turns_go_on_while_redis_and_the_database_are_away(pair: Pair) -> None:
    words, gate = WORDS[:200], asyncio.Event()
    first, reading = await begin(pair, words, pause_after=199, gate=gate)
    second = another(first)
    along = asyncio.ensure_future(second.go_on(pair.two))
    await second.has("content_delta")
    await pair.redis.stop()
    await pair.database.stop()
    pair.ollama.reply(["New."])
    new = RunReader(await pair.one.new_session())
    with anyio.fail_after(SECONDS):
        await new.send(pair.one, "Go.")
    assert (new.text, new.kinds[-1]) == ("New.", "done")
    status, answer = await pair.two.get(f"/runs/{new.run_id}")
    assert (status, answer["error"]["code"]) == (503, "STORAGE_UNAVAILABLE")
    await until(lambda: pair.one.get("/health"), lambda answer: not answer[1]["redis_connected"])
    gate.set()
    with anyio.fail_after(SECONDS):
        await reading
    assert first.text == "".join(words)
    await pair.redis.start()
    await pair.database.start()
    with anyio.fail_after(SECONDS):
        await along
    assert second.text == first.text
    assert second.kinds[-1] == "done"
    assert [m["content"] for m in await pair.messages(first.session_id)] == ["Go.", first.text]
    again = another(new)
    await again.go_on(pair.two)
    assert again.kinds == new.kinds
