"""What only a real socket shows: the gate in its place, garbage, sockets, signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal

import aiohttp
import anyio
import pytest
from aiohttp import WSServerHandshakeError

from mochi_server.sessions import JSONFileStorage

ORIGIN = "http://localhost:3000"


async def raw(server, data):
    """The answer to some bytes."""
    host, port = server.url.removeprefix("http://").split(":")
    with anyio.fail_after(30):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        await writer.drain()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


async def refused_socket(server, path, **headers):
    with pytest.raises(WSServerHandshakeError) as refusal:
        await server.http.ws_connect(server.url.replace("http", "ws") + path, headers=headers)
    return refusal.value.status


async def test_the_gate_stands_in_front_of_everything(server_of, ollama_url):
    async with server_of(ollama=ollama_url, cors_origins=ORIGIN, max_body_mb="0.001") as server:
        # A page of another site
        for headers, code in (
            ({"Origin": "https://evil.example"}, "ORIGIN_NOT_ALLOWED"),
            ({"Host": "evil.example"}, "HOST_NOT_ALLOWED"),
        ):
            status, body = await server.post("/sessions", {"model": "qwen3:14b"}, headers=headers)
            assert (status, body["error"]["code"]) == (403, code)
        assert (await server.get("/sessions"))[1]["sessions"] == []

        # An allowed page
        headers = {"Origin": ORIGIN}
        preflight = headers | {"Access-Control-Request-Method": "POST"}
        async with server.http.options(server.api + "/sessions", headers=preflight) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
            assert "content-type" in response.headers["Access-Control-Allow-Headers"].lower()
        async with server.http.get(server.api + "/nowhere", headers=headers) as response:
            assert response.status == 404
            assert response.headers["Access-Control-Allow-Origin"] == ORIGIN

        # Sockets
        assert await refused_socket(server, "/ws/nowhere") == 404
        assert await refused_socket(server, "/ws/chat", Origin="https://evil.example") == 403

        # Bodies over the limit, declared and not
        status, body = await server.post("/sessions", {"model": "x" * 2000})
        assert (status, body["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")

        async def endless():
            for _ in range(50):
                yield b"x" * 100

        async with server.http.post(server.api + "/sessions", data=endless()) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "PAYLOAD_TOO_LARGE"

        # Garbage
        head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        for request, status in (
            (b"\x00\xff\r\n\r\n", b"400"),
            (b"GET /api/v1/models\r\n\r\n", b"403"),
            (b"GET /api/v1/\xff" + head + b"\r\n", b"400"),
            (b"BREW /api/v1/models" + head + b"\r\n", b"400"),
            (b"GET /api/v1/sessions?limit=\xff" + head + b"\r\n", b"400"),
            (b"GET /api/v1/sessions/%00%ff" + head + b"\r\n", b"404"),
            (b"GET /api/v1/../../etc/passwd" + head + b"\r\n", b"404"),
            (b"GET /api/v1/health" + head + b"Host: localhost\r\n\r\n", b"403"),
            (b"POST /api/v1/sessions" + head + b"Content-Length: 1\r\n\r\n{", b"400"),
        ):
            answer = await raw(server, request)
            assert answer.split(b" ")[1] == status, (request, answer)
        assert (await server.get("/health"))[0] == 200
    assert "Traceback" not in server.log


async def test_a_turn_that_runs_at_the_end_is_kept(server_of, ollama, tmp_path):
    gate = asyncio.Event()
    ollama.reply(["Hal", "lo"], gate=gate, pause_after=1)
    async with server_of(ollama=ollama, shutdown_seconds=5) as server:
        session_id = await server.new_session()
        found = []
        with anyio.fail_after(60):
            stream = server.stream(f"/chat/{session_id}/stream", {"message": "Hi"})
            async for event in stream:
                found.append(event)
                if event.event == "content_delta":
                    os.kill(server.pid, signal.SIGTERM)
            with anyio.fail_after(30):
                assert await server.process.wait() == 0
    assert [event.event for event in found] == ["run_start", "content_delta", "error", "done"]
    stored = json.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_text())
    assert [message["content"] for message in stored["messages"]] == ["Hi", "Hal"]
    assert stored["messages"][1]["interrupted"] is True
    assert "Traceback" not in server.log


async def test_without_time_to_shut_down_a_partial_reply_is_kept_all_the_same(
    server_of, ollama, tmp_path
):
    """Also when its save takes longer than the server waits for connections: here somebody else
    is just editing the session."""
    ollama.reply(["Hal", "lo"], gate=asyncio.Event(), pause_after=1)
    async with server_of(ollama=ollama, shutdown_seconds=0) as server:
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
        with anyio.fail_after(30):
            assert await server.process.wait() == 0
    stored = json.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_text())
    assert [message["content"] for message in stored["messages"]] == ["Hi", "Hal"]
    assert stored["messages"][1]["interrupted"] is True


async def test_with_a_token_only_who_has_it_gets_in(server_of, ollama_url):
    async with server_of(ollama=ollama_url, api_token="s3cret") as server:
        assert (await server.get("/health"))[0] == 200
        async with server.http.get(server.api + "/models") as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
            assert (await response.json())["error"]["code"] == "UNAUTHORIZED"
        headers = {"Authorization": "Bearer s3cret"}
        assert (await server.get("/models", headers=headers))[0] == 200
        assert await refused_socket(server, "/ws/chat") == 401
        address = server.url.replace("http", "ws") + "/ws/chat?token=s3cret"
        async with server.http.ws_connect(address) as socket:
            assert (await socket.receive_json(timeout=30))["event"] == "system:ready"


async def test_a_client_that_hangs_up_stops_the_model(server_of, ollama):
    ollama.reply(["never"] * 1000, delay=0.05)
    async with server_of(ollama=ollama) as server:
        session_id = await server.new_session()
        async with aiohttp.ClientSession() as client:
            response = await client.post(
                f"{server.api}/chat/{session_id}/stream", json={"message": "Hi"}
            )
            await response.content.readany()
            response.close()
        with anyio.fail_after(30):
            await ollama.disconnected()
