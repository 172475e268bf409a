"""Disks, networks, a Redis and clients that fail; docs/explanation/reliability.md."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.testing import call, instructions, text
from tests.support import network
from tests.support.disk import may_mount, small_disk
from tests.support.fake_ollama import FakeOllama
from tests.support.outages import WAITS_LONG
from tests.support.postgresql import needs_postgresql, running_postgresql
from tests.support.redis import PERSISTENT, Redis, free_port, needs_redis, running_redis
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.wires import HELLO, hello

MODEL = "test/any"
SECONDS = 60

pytestmark = pytest.mark.slow

needs_mount = pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")


def saying(words: int) -> str:
    script = {"messages": [{"text_message": {"length": words}}]}
    return f"<|instruction_start|>{json.dumps(script)}<|instruction_end|>"


async def code_of(server: Server, path: str, body: Any) -> tuple[int, str]:
    status, answer = await server.post(path, body)
    return status, answer["error"]["code"]


async def messages(server: Server, session_id: str) -> list[dict[str, Any]]:
    status, session = await server.get(f"/sessions/{session_id}")
    assert status == 200, session
    found: list[dict[str, Any]] = session["messages"]
    return found


async def begin(server: Server, words: int) -> tuple[RunReader, asyncio.Future[None]]:
    """Begin a turn in a new session, and return when the model speaks."""
    reader = RunReader(await server.new_session(MODEL))
    reading = asyncio.ensure_future(reader.send(server, saying(words)))
    with anyio.fail_after(SECONDS):
        await reader.said.wait()
    return reader, reading


async def until_free(server: Server, session_id: str) -> None:
    """Wait until a message is accepted."""
    body = {"message": saying(1)}
    status, _ = await until(
        lambda: server.post(f"/chat/{session_id}", body), lambda answer: answer[0] != 409
    )
    assert status == 200


@asynccontextmanager
async def server_over_redis(
    folder: Path, *options: str, **settings: Any
) -> AsyncIterator[tuple[Redis, Server]]:
    """A server whose sessions are in Redis; a test model speaks 20 words a second."""
    settings = {"test_words_per_second": 20, **settings}
    async with (
        running_redis(folder, *options) as redis,
        running_server(
            data_dir=folder, session_storage="redis", redis_url=redis.url, **settings
        ) as server,
    ):
        yield redis, server


@needs_mount
async def test_a_full_disk_refuses_messages_keeps_what_is_there_and_goes_on_with_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "data", "8m") as disk:
        async with running_server(data_dir=disk.folder, test_words_per_second=50) as server:
            session_id = await server.new_session(MODEL)
            status, _ = await server.post(f"/chat/{session_id}", {"message": saying(3)})
            assert status == 200
            before = await messages(server, session_id)
            reader, reading = await begin(server, 100)
            disk.fill()
            refused = (507, "STORAGE_ERROR")
            body = {"message": "Hi"}
            assert await code_of(server, f"/chat/{session_id}", body) == refused
            assert await code_of(server, f"/chat/{session_id}/stream", body) == refused
            assert await code_of(server, "/sessions", {"model": MODEL}) == refused
            assert await messages(server, session_id) == before
            assert (await server.get("/sessions"))[0] == 200
            with anyio.fail_after(SECONDS):
                await reading
            assert reader.kinds[-2:] == ["error", "done"]
            assert reader.events[-2].data["code"] == "STORAGE_ERROR"
            assert [m["role"] for m in await messages(server, reader.session_id)] == ["user"]
            disk.empty()
            for each in (session_id, reader.session_id):
                status, answer = await server.post(f"/chat/{each}", {"message": saying(2)})
                assert status == 200, answer
            assert (await messages(server, session_id))[: len(before)] == before
            assert await server.stop() == 0
            assert "Traceback" not in server.log


@needs_mount
async def test_a_folder_that_becomes_read_only_is_read_and_refuses_messages(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "data" / "chat_sessions", "8m") as disk:
        async with running_server(data_dir=tmp_path / "data", test_words_per_second=0) as server:
            session_id = await server.new_session(MODEL)
            status, _ = await server.post(f"/chat/{session_id}", {"message": saying(3)})
            assert status == 200
            before = await messages(server, session_id)
            disk.allow_writing(allowed=False)
            refused = (507, "STORAGE_ERROR")
            for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
                assert await code_of(server, path, {"message": "Hi"}) == refused
            assert await code_of(server, "/sessions", {"model": MODEL}) == refused
            status, answer = await server.request("DELETE", f"/sessions/{session_id}")
            assert (status, answer["error"]["code"]) == refused
            assert await messages(server, session_id) == before
            _, listed = await server.get("/sessions")
            assert [each["session_id"] for each in listed["sessions"]] == [session_id]
            disk.allow_writing(allowed=True)
            status, _ = await server.post(f"/chat/{session_id}", {"message": saying(3)})
            assert status == 200
            assert len(await messages(server, session_id)) == 4
            assert "Traceback" not in server.log


def asked(session_id: str) -> list[tuple[str, str, Any]]:
    """Return requests that need what Redis has, over every wire."""
    own, chat = f"/api/v1/sessions/{session_id}", f"/api/v1/chat/{session_id}"
    return [
        ("GET", "/api/v1/sessions", None),
        ("POST", "/api/v1/sessions", {"model": MODEL}),
        *[("GET", f"{own}{path}", None) for path in ("", "/messages", "/export", "/status")],
        *[("GET", f"{own}{path}", None) for path in ("/attachments", "/variants", "/summary")],
        ("PATCH", own, {"title": "New"}),
        ("DELETE", own, None),
        *[("POST", f"{own}{path}", None) for path in ("/fork", "/summarize")],
        ("POST", "/api/v1/sessions/import", {"messages": [{"role": "user", "content": "Hello"}]}),
        *[("POST", f"{chat}{path}", {"message": "Hello"}) for path in ("", "/stream", "/runs")],
        *[("GET", f"{chat}{path}", None) for path in ("/stream", "/confirmations")],
        ("POST", "/api/v1/chat", {"message": "Hello", "model": MODEL}),
        *[("POST", path, hello(path, MODEL)) for path in HELLO],
        *[("GET", f"/v1/conversations/conv_{session_id}{path}", None) for path in ("", "/items")],
        ("POST", "/v1/conversations", {}),
        ("GET", "/api/v1/health/ready", None),
    ]


@needs_redis
async def test_an_outage_has_one_status_on_every_route_and_wire(tmp_path: Path) -> None:
    async with server_over_redis(tmp_path) as (redis, server):
        session_id = await server.new_session(MODEL)
        await redis.stop()
        await server.get(f"/sessions/{session_id}")  # waits for a restart
        others = {}
        for method, path, body in asked(session_id):
            headers = {"X-Mochi-Session": session_id}
            options = {"json": body, "headers": headers}
            async with server.http.request(method, server.url + path, **options) as answer:
                found = (answer.status, answer.headers.get("Retry-After"))
                if found != (503, "3"):
                    others[method, path] = (*found, await answer.text())
        assert others == {}
        assert "Traceback" not in server.log


@needs_redis
async def test_a_turn_goes_on_when_redis_is_back_with_its_sessions(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    words, gate = [f"{number} " for number in range(40)], asyncio.Event()
    ollama.reply(words, delay=0.05, pause_after=39, gate=gate)
    async with server_over_redis(tmp_path, *PERSISTENT, ollama=ollama) as (redis, server):
        reader = RunReader(await server.new_session())
        reading = asyncio.ensure_future(reader.send(server, "Go."))
        await reader.has("content_delta")
        await redis.stop()
        other = await server.get(f"/sessions/{reader.session_id}")
        assert (other[0], other[1]["error"]["code"]) == (503, "STORAGE_UNAVAILABLE")
        assert (await server.get("/health/ready"))[0] == 503
        await redis.start()
        await until(lambda: server.get("/health/ready"), lambda answer: answer[0] == 200)
        gate.set()
        with anyio.fail_after(SECONDS):
            await reading
        assert reader.kinds[-2:] == ["message_complete", "done"]
        question, answer = await messages(server, reader.session_id)
        assert question["role"] == "user"
        assert answer["content"] == reader.text == "".join(words)
        assert "Traceback" not in server.log


WAITING_TOOL = '''
import time
from pathlib import Path


def wait(folder: str) -> str:
    """Wait until somebody lets it go.

    Args:
        folder: Where it says that it waits, and is let go.
    """
    Path(folder, "waits").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return "done"


__all__ = ["wait"]
'''


@needs_redis
async def test_a_turn_stores_its_result_through_a_restart_of_redis(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=WAITING_TOOL)
    async with server_over_redis(tmp_path, *PERSISTENT, command=WAITS_LONG) as (redis, server):
        settings = {"tools": ["wait"], "execution_policy": "never_confirm"}
        session_id = await server.new_session(MODEL, tool_settings=settings)
        reader = RunReader(session_id)
        message = instructions(call("wait", folder=str(tmp_path)), then=[[text(exactly="Well.")]])
        reading = asyncio.ensure_future(reader.send(server, message))
        await until((tmp_path / "waits").exists)
        await redis.stop()
        (tmp_path / "go").touch()
        await server.saw("The Redis of the sessions cannot be used: ")
        await redis.start()
        with anyio.fail_after(SECONDS):
            await reading
        assert reader.kinds[-2:] == ["message_complete", "done"]
        stored = await messages(server, session_id)
        assert [each["role"] for each in stored] == ["user", "assistant", "tool", "assistant"]
        assert (stored[2]["content"], stored[3]["content"]) == ("done", "Well.")
        assert "Traceback" not in server.log


@needs_redis
async def test_a_turn_whose_session_an_empty_redis_does_not_know_ends_with_an_error(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    gate = asyncio.Event()
    ollama.reply(["One ", "two."], pause_after=1, gate=gate)
    async with server_over_redis(tmp_path, ollama=ollama) as (redis, server):
        reader = RunReader(await server.new_session())
        reading = asyncio.ensure_future(reader.send(server, "Go."))
        await reader.has("content_delta")
        await redis.stop()
        await redis.start()
        gate.set()
        with anyio.fail_after(SECONDS):
            await reading
        assert reader.kinds[-2:] == ["error", "done"]
        assert reader.events[-2].data["code"] == "SESSION_NOT_FOUND"
        status, listed = await server.get("/sessions")
        assert (status, listed["sessions"]) == (200, [])
        session_id = await server.new_session(MODEL)
        status, _ = await server.post(f"/chat/{session_id}", {"message": saying(3)})
        assert status == 200
        assert "Traceback" not in server.log


@needs_redis
async def test_a_turn_whose_redis_becomes_a_replica_ends_with_an_error(tmp_path: Path) -> None:
    async with server_over_redis(tmp_path) as (redis, server):
        reader, reading = await begin(server, 60)
        await redis.command("REPLICAOF 127.0.0.1 1")
        with anyio.fail_after(SECONDS):
            await reading
        assert reader.kinds[-2:] == ["error", "done"]
        assert reader.events[-2].data["code"] == "STORAGE_ERROR"
        assert [each["role"] for each in await messages(server, reader.session_id)] == ["user"]
        assert (await server.get("/health/ready"))[0] == 200
        await redis.command("REPLICAOF NO ONE")
        with anyio.fail_after(SECONDS):
            await until_free(server, reader.session_id)
        assert "Traceback" not in server.log


@needs_redis
@needs_postgresql
@pytest.mark.parametrize("hangs", ["redis", "database"])
async def test_runs_of_a_server_that_stops_while_what_it_shares_hangs_are_ended_by_another(
    tmp_path: Path, hangs: str
) -> None:
    async with running_redis(tmp_path) as redis, running_postgresql() as database:
        settings: dict[str, Any] = {
            "session_storage": "redis",
            "redis_url": redis.url,
            "database_url": database.url,
        }
        hanging = {"redis": redis, "database": database}[hangs]
        folders = [tmp_path / "stops", tmp_path / "stays"]
        for folder in folders:
            folder.mkdir()
        async with (
            running_server(
                data_dir=folders[0], shutdown_seconds=1, test_words_per_second=20, **settings
            ) as server,
            running_server(data_dir=folders[1], **settings) as other,
        ):
            reader, reading = await begin(server, 20 * SECONDS)
            with anyio.fail_after(SECONDS):
                await reader.until_written(other, words=10)
                hanging.hang()
                assert await server.stop() == 0
                await reading
            hanging.resume()
            with anyio.fail_after(SECONDS):
                assert await reader.go_on(other) == 200
            assert reader.kinds[-2:] == ["error", "done"]
            assert reader.events[-2].data["code"] == "RUN_INTERRUPTED"
            _, partial = await messages(other, reader.session_id)
            assert partial["interrupted"] is True
            assert partial["content"].split()[:10] == reader.text.split()[:10]
            with anyio.fail_after(SECONDS):
                await until_free(other, reader.session_id)


async def test_a_model_server_that_restarts_costs_one_turn(tmp_path: Path) -> None:
    async with AsyncExitStack() as life:
        ollama = await life.enter_async_context(FakeOllama(port=free_port()))
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            ollama.reply(["Once", " upon", " a time"], gate=asyncio.Event(), pause_after=2)
            reader = RunReader(await server.new_session())
            reading = asyncio.ensure_future(reader.send(server, "Tell!"))
            with anyio.fail_after(SECONDS):
                await reader.said.wait()
                await life.aclose()
                await reading
            assert reader.kinds[-2:] == ["error", "done"]
            assert reader.events[-2].data["code"] == "OLLAMA_ERROR"
            _, partial = await messages(server, reader.session_id)
            assert (partial["content"], partial["interrupted"]) == (reader.text, True)
            body = {"message": "Again."}
            unreachable = (502, "OLLAMA_UNREACHABLE")
            assert await code_of(server, f"/chat/{reader.session_id}", body) == unreachable
            async with FakeOllama(port=ollama.port):
                status, answer = await server.post(f"/chat/{reader.session_id}", body)
                assert (status, answer["message"]["content"]) == (200, "You said: Again.")
            assert "Traceback" not in server.log


async def test_a_thousand_clients_that_connect_and_leave_leave_nothing(tmp_path: Path) -> None:
    async with running_server(data_dir=tmp_path, test_words_per_second=50) as server:
        sessions = [await server.new_session(MODEL) for _ in range(20)]
        host, port = server.url.removeprefix("http://").split(":")
        files = Path(f"/proc/{server.pid}/fd")

        async def visit(number: int) -> None:
            """Connect and leave: at once, in the head, in the body, or in the answer."""
            reader, writer = await asyncio.open_connection(host, int(port))
            body = json.dumps({"message": saying(1000)}).encode()
            session = sessions[number % len(sessions)]
            head = f"POST /api/v1/chat/{session}/stream HTTP/1.1\r\nHost: {host}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            whole = head.encode() + body
            parts = [b"", whole[:40], whole[:-10], whole, whole]
            writer.write(parts[number % 5])
            if number % 5 == 4:
                await reader.read(100)
            writer.transport.abort()

        before = len([*files.iterdir()])
        for start in range(0, 1000, 100):
            with anyio.fail_after(SECONDS):
                await asyncio.gather(*(visit(n) for n in range(start, start + 100)))
        with anyio.fail_after(SECONDS):
            await asyncio.gather(*(until_free(server, session) for session in sessions))
            await until(lambda: len([*files.iterdir()]) <= before + 25)
        assert "Traceback" not in server.log


CUT_SECONDS = 90
WORDS_PER_SECOND = 20
LACK = network.lack()


async def send_when_free(server: Server, session_id: str, text: str) -> None:
    """Send a message as soon as no turn holds the session, and wait for the answer."""
    status, answer = await until(
        lambda: server.post(f"/chat/{session_id}", {"message": text}),
        lambda answer: answer[0] != 409 or answer[1]["error"]["code"] != "SESSION_BUSY",
        seconds=CUT_SECONDS,
    )
    assert status == 200, answer


@needs_redis
@needs_postgresql
@pytest.mark.slow
@pytest.mark.skipif(LACK is not None, reason=f"no network: {LACK}")
async def test_a_machine_that_was_cut_off_writes_nothing_over_what_another_has_written(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {
        "session_storage": "redis",
        "test_words_per_second": WORDS_PER_SECOND,
    }
    with network.network() as net:
        addresses = ("--bind", "127.0.0.1", net.here, "--protected-mode", "no")
        async with (
            running_redis(tmp_path, *addresses) as redis,
            running_postgresql(listen_addresses="*") as database,
        ):
            url = f"redis://{net.here}:{redis.port}/0"
            far_url = database.url.replace("127.0.0.1", net.here)
            folders = [tmp_path / "far", tmp_path / "near"]
            for folder in folders:
                folder.mkdir()
            async with (
                running_server(
                    data_dir=folders[0],
                    command=net.command,
                    redis_url=url,
                    database_url=far_url,
                    **settings,
                ) as far,
                running_server(
                    data_dir=folders[1],
                    redis_url=redis.url,
                    database_url=database.url,
                    **settings,
                ) as near,
            ):
                session_id = await far.new_session(MODEL)
                reader = RunReader(session_id)
                first = saying(CUT_SECONDS * WORDS_PER_SECOND)
                reading = asyncio.ensure_future(reader.send(far, first))
                await reader.until_written(near)
                net.cut()
                await send_when_free(near, session_id, saying(3))
                taken = await messages(near, session_id)
                assert [m["role"] for m in taken] == ["user", "assistant"] * 2
                assert taken[1]["interrupted"] is True
                net.mend()
                await far.saw("is lost to this process")
                await until(
                    lambda: far.get(f"/sessions/{session_id}/status"),
                    lambda answer: not answer[1]["turn_running"],
                    seconds=CUT_SECONDS,
                )
                assert await messages(far, session_id) == taken
                await send_when_free(far, session_id, saying(5))
                after = await messages(near, session_id)
                assert after[: len(taken)] == taken
                assert [m["role"] for m in after] == ["user", "assistant"] * 3
                reading.cancel()
