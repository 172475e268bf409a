"""The MCP server: ``/mcp`` with the gate before it, and ``mochi-server mcp``."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.support.mcp_clients import ERAS, LEGACY, MODERN, Person, text_of
from tests.support.mcp_http import (
    ACCEPTED,
    call,
    modern,
    modern_headers,
    request,
    write_mcp_tools,
)
from tests.support.server import NOBODY, ROOT, environment, run_command
from tests.support.waiting import until

INITIALIZE = request(
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)


async def status_of(server, body=INITIALIZE, *, method="POST", **headers):
    """Status of a request, and the code of its error."""
    options = {"data": body} if isinstance(body, bytes) else {"json": body}
    headers = {"Content-Type": "application/json", **ACCEPTED, **headers}
    url = f"{server.url}/mcp"
    async with server.http.request(method, url, headers=headers, **options) as response:
        text = await response.text()
    if not text.startswith("{"):
        return response.status, None
    return response.status, json.loads(text).get("error", {}).get("code")


async def test_the_gate_stands_before_it(server_of, tmp_path, ollama_url):
    write_mcp_tools(tmp_path)
    options = {"api_token": "secret", "max_body_mb": "0.01", "allowed_hosts": "mochi.example"}
    token = {"Authorization": "Bearer secret"}
    async with server_of(ollama=ollama_url, **options) as server:
        for headers, expected in (
            ({}, (401, "UNAUTHORIZED")),
            ({"Authorization": "Bearer wrong"}, (401, "UNAUTHORIZED")),
            ({**token, "Origin": "https://evil.example"}, (403, "ORIGIN_NOT_ALLOWED")),
            ({**token, "Origin": "null"}, (403, "ORIGIN_NOT_ALLOWED")),
            ({**token, "Host": "evil.example"}, (403, "HOST_NOT_ALLOWED")),
            ({**token, "Sec-Fetch-Site": "cross-site"}, (403, "ORIGIN_NOT_ALLOWED")),
            ({**token, "Host": "mochi.example"}, (200, None)),
        ):
            assert await status_of(server, **headers) == expected, headers
        long = request("ping", padding="x" * 20_000)
        assert await status_of(server, long, **token) == (413, "PAYLOAD_TOO_LARGE")

        async def endless():
            for _ in range(50):
                yield b"x" * 1000

        headers = {**token, **ACCEPTED, "Content-Type": "application/json"}
        url = f"{server.url}/mcp"
        async with server.http.post(url, data=endless(), headers=headers) as response:
            assert response.status == 413

        for body, expected in (
            (b"", 400),
            (b"{", 400),
            (b"[" * 100_00, 400),
            (b"null", 400),
            (json.dumps([INITIALIZE]).encode(), 400),
        ):
            assert (await status_of(server, body, **token))[0] == expected, body[:9]
        assert (await status_of(server, request("tools/list"), **token))[0] == 400
        session = {"Mcp-Session-Id": "0" * 32}
        assert (await status_of(server, request("tools/list"), **token, **session))[0] == 404
        unknown = modern_headers("nothing/known")
        assert await status_of(server, modern("nothing/known"), **token, **unknown) == (404, -32601)
        assert (await status_of(server, method="PUT", **token))[0] == 405
        assert "Traceback" not in server.log


async def test_a_page_of_an_allowed_origin_can_use_it(server_of, ollama_url):
    origin = "http://localhost:6274"
    async with server_of(ollama=ollama_url, cors_origins=origin) as server:
        preflight = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,mcp-protocol-version",
        }
        url = f"{server.url}/mcp"
        async with server.http.options(url, headers=preflight) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == origin
            assert "mcp-protocol-version" in response.headers["Access-Control-Allow-Headers"]
        headers = {"Origin": origin, **ACCEPTED}
        async with server.http.post(url, json=INITIALIZE, headers=headers) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == origin
            assert "mcp-session-id" in response.headers["Access-Control-Expose-Headers"].lower()


async def test_clients_of_both_eras_use_it(server_of, tmp_path, ollama_url):
    write_mcp_tools(tmp_path)
    async with server_of(ollama=ollama_url) as server:
        for era in ERAS:
            person = Person()
            with anyio.fail_after(60):
                url = f"{server.url}/mcp"
                async with Client(url, mode=era, elicitation_callback=person) as client:
                    assert text_of(await client.call_tool("echo", {"text": "Hi"})) == "Hi"
                    assert text_of(await client.call_tool("note", {"text": era})) == "noted"
                    person.action = "decline"
                    assert (await client.call_tool("note", {"text": "two"})).is_error
                    with pytest.raises(MCPError, match="Method not found"):
                        await client.complete(
                            {"type": "ref/prompt", "name": "x"}, {"name": "x", "value": "x"}
                        )
            assert len(person.questions) == 2, era
        status, body = await server.get("/confirmations/history")
        results = await asyncio.gather(
            *(call(server, "echo", text=str(number)) for number in range(200))
        )
        assert [each["content"][0]["text"] for each in results] == [*map(str, range(200))]
    assert (tmp_path / "notes.txt").read_text().split() == [*ERAS]
    assert status == 200
    history = [entry["decision"]["decided_by"] for entry in body["history"]]
    assert history == ["mcp"] * 4


async def test_processes_share_the_questions_of_a_client(server_of, tmp_path, ollama_url):
    write_mcp_tools(tmp_path)
    async with server_of(ollama=ollama_url, workers=2) as server:
        person = Person()
        with anyio.fail_after(100):
            url = f"{server.url}/mcp"
            for number in range(6):  # each request is a connection, to whichever process
                async with Client(url, mode=MODERN, elicitation_callback=person) as client:
                    result = await client.call_tool("note", {"text": str(number)})
                    assert text_of(result) == "noted"
            async with Client(url, mode=LEGACY, elicitation_callback=person) as client:
                for _ in range(6):
                    assert text_of(await client.call_tool("echo", {"text": "Hi"})) == "Hi"
                result = await client.call_tool("note", {"text": "old"})
                assert "nobody can be asked here" in text_of(result)
    assert len(person.questions) == 6
    assert (tmp_path / "notes.txt").read_text().split() == [*map(str, range(6))]


async def test_a_client_that_vanishes_stops_its_call(server_of, tmp_path, ollama_url):
    write_mcp_tools(tmp_path)
    async with server_of(ollama=ollama_url) as server:
        calling = asyncio.ensure_future(call(server, "hang"))
        with anyio.fail_after(60):
            await until((tmp_path / "hangs.txt").exists)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling

            async def state() -> str:
                [run] = (await server.get("/runs"))[1]["runs"]
                return str(run["state"])

            assert await until(state, lambda state: state != "running") == "stopped"
        result = await call(server, "echo", text="still there")
        assert result["content"][0]["text"] == "still there"


async def test_the_server_stops_while_clients_listen(server_of, tmp_path, ollama_url):
    write_mcp_tools(tmp_path)
    async with server_of(ollama=ollama_url, shutdown_seconds=120) as server:
        url = f"{server.url}/mcp"
        async with server.http.post(url, json=INITIALIZE, headers=ACCEPTED) as response:
            session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], **ACCEPTED}
        async with server.http.get(url, headers=session) as listening:
            calling = asyncio.ensure_future(call(server, "hang"))
            with anyio.fail_after(100):
                await until((tmp_path / "hangs.txt").exists)
            began = time.monotonic()
            assert await server.stop(signal.SIGTERM) in {0, -signal.SIGTERM}
            assert time.monotonic() - began < 90
            result = await calling
            assert result["isError"]
            assert "shutting down" in result["content"][0]["text"]
            assert listening.status == 200
        assert "Traceback" not in server.log
        assert "mcp.server" not in server.log  # sessions that come and go are no news


def test_nothing_is_loaded_at_the_start():
    program = (
        "import sys, mochi_project.asgi, mochi_server.__main__\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(data_dir="."),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert ended.stdout.strip() == "[]"


def parameters(folder):
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "mochi_server", "--data-dir", str(folder), "mcp"],
        env=environment(ollama_host=NOBODY),
        cwd=folder,
    )


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_on_standard_input_uses_it(tmp_path, era):
    write_mcp_tools(tmp_path)
    person = Person()
    with anyio.fail_after(90):
        server = parameters(tmp_path)
        async with Client(server, mode=era, elicitation_callback=person) as client:
            assert text_of(await client.call_tool("echo", {"text": "Hi"})) == "Hi"
            assert text_of(await client.call_tool("note", {"text": "one"})) == "noted"
            assert (await client.list_resources()).resources == []
    assert (tmp_path / "notes.txt").read_text() == "one\n"


async def test_only_the_protocol_is_on_standard_output(tmp_path):
    write_mcp_tools(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mochi_server", "--data-dir", str(tmp_path), "mcp"),
        cwd=tmp_path,
        env=environment(ollama_host=NOBODY),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    lines = [
        request("initialize", **hello, clientInfo={"name": "test", "version": "1"}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {**request("tools/call", name="echo", arguments={"text": "Hi"}), "id": 2},
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with anyio.fail_after(60):
            for line in lines:
                process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.write(b"rubbish\n")
            answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
            process.stdin.close()
            rest, log = await process.stdout.read(), (await process.stderr.read()).decode()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "Hi"}]
    assert (code, rest) == (0, b"")
    assert "to standard output" in log
    assert "Traceback" not in log


async def test_it_says_what_it_cannot_serve(tmp_path):
    ended = await run_command("mcp", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "is no data folder of mochi-server" in ended.err
