"""What the log says of turns and refused requests, by which ids they are found, and as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from mochi_server.core.logs import JSONFormatter, set_log_ids
from mochi_server.mcp_server.http import PATH as MCP_PATH
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.sockets import socket

RUN = r"run=run_[0-9a-f]{16}"
LINE = re.compile(r"[-\d]+ [:,\d]+ (\w+) +(\S+)(?: \[(\S+)\])?: (.*)")
MADE = re.compile(r"[0-9a-f]{16}")


def lines(server: Server, logger: str) -> list[tuple[str, ...]]:
    """Level, id of the request and words of each line of a logger."""
    found = filter(None, map(LINE.fullmatch, server.log.splitlines()))
    return [(each[1], each[3] or "", each[4]) for each in found if each[2] == logger]


async def talk(server: Server, session: str, **options: Any) -> list[Any]:
    path = f"/chat/{session}/stream"
    with anyio.fail_after(30):
        return [each async for each in server.stream(path, {"message": "Hi"}, **options)]


async def test_a_turn_that_the_model_server_ends_is_one_warning(tmp_path: Path, ollama: FakeOllama):
    words = "boom\n2026-01-01 00:00:00,000 ERROR root: forged \x1b[2J for http://me:s3cret@there"
    address = ollama.url.replace("http://", "http://me:s3cret@")
    async with running_server(data_dir=tmp_path, ollama=address) as server:
        session = await server.new_session()
        ollama.reply(["So"], error=words.replace("me:s3cret@", ""))
        events = await talk(server, session, headers={"X-Request-ID": "from-a-test"})
        assert [each.event for each in events][-2:] == ["error", "done"]
        ollama.reply(error="boom again")
        status, _ = await server.post(f"/chat/{session}", {"message": "Hi"})
        assert status == 502
        await server.saw("boom again")
        (level, request, first), second = lines(server, "mochi_server.chat.runs.registry")
    assert (level, request) == ("WARNING", "from-a-test")
    named = f"Turn failed: session={session} {RUN} model=qwen3:14b code=OLLAMA_ERROR: "
    assert re.match(named, first)
    assert "boom 2026-01-01 00:00:00,000 ERROR root: forged [2J for" in first
    assert re.match(f"{named}.*boom again", second[2])
    assert (second[0], bool(MADE.fullmatch(second[1]))) == ("WARNING", True)
    assert "s3cret" not in server.log
    assert "Traceback" not in server.log


async def test_a_turn_whose_model_server_is_gone_is_one_warning_too(tmp_path: Path):
    """Also of a first message, for which no session can be made: there is no turn yet."""
    async with AsyncExitStack() as stack:
        ollama = await stack.enter_async_context(FakeOllama())
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            session = await server.new_session()
            await stack.aclose()
            first = {"message": "Hi", "session_id": "mine", "model": "qwen3:14b"}
            for path, body in ((f"/chat/{session}", {"message": "Hi"}), ("/chat", first)):
                assert (await server.post(path, body))[0] == 502
            await server.saw("Turn failed", 2)
            told = lines(server, "mochi_server.chat.runs.registry")
    for name, (level, _, words) in zip((session, "mine"), told, strict=True):
        assert level == "WARNING"
        assert re.match(f"Turn failed: session={name} {RUN} model=qwen3:14b code=OLLAMA_", words)


async def test_turns_that_are_cut_are_told_at_info(tmp_path: Path, ollama: FakeOllama):
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        gate = asyncio.Event()  # never set: the model says a word and goes on thinking
        ollama.reply(["So", "on"], pause_after=1, gate=gate)
        left = await server.new_session()
        async for event in server.stream(f"/chat/{left}/stream", {"message": "Hi"}):
            if event.event == "content_delta":
                break
        await server.saw("Turn interrupted")
        ollama.reply(["So", "on"], pause_after=1, gate=gate)
        stopped = await server.new_session()
        async for event in server.stream(f"/chat/{stopped}/stream", {"message": "Hi"}):
            if event.event == "content_delta":
                server.process.terminate()
        assert await server.stop() == 0
    gate.set()
    first, second = lines(server, "mochi_server.chat.runs.registry")
    named = f"{RUN} model=qwen3:14b"
    assert first[0] == second[0] == "INFO"
    words = f"Turn interrupted, its last reader has left: session={left} {named}"
    assert re.fullmatch(words, first[2])
    words = f"Turn stopped: session={stopped} {named} code=SHUTTING_DOWN"
    assert re.fullmatch(words, second[2])
    assert "WARNING" not in server.log


async def test_refused_requests_are_told_at_debug_without_secrets(tmp_path: Path):
    async with running_server(data_dir=tmp_path, log_level="DEBUG", api_token="t0psecret") as it:
        key = {"Authorization": "Bearer t0psecret", "X-Request-ID": "mine"}
        wrong = {"Authorization": "Bearer guessed", "X-Request-ID": "guess"}
        asked = [
            ("/sessions?query=private", {**key, "Origin": "https://evil.example"}),
            ("/tools/a%0Ab", {**key, "Host": "evil.example"}),
            ("/sessions", wrong),
        ]
        for path, headers in asked:
            assert (await it.get(path, headers=headers))[0] in {401, 403}
        await it.saw("UNAUTHORIZED")
        found = lines(it, "mochi_project.http.gate")
    assert [(level, request) for level, request, _ in found] == [
        ("DEBUG", "mine"), ("DEBUG", "mine"), ("DEBUG", "guess"),
    ]  # fmt: skip
    origin, host, token = (words for *_, words in found)
    assert origin.startswith(
        "Refused GET '/api/v1/sessions': ORIGIN_NOT_ALLOWED: Origin 'https://evil.example'"
    )
    assert host.startswith(
        "Refused GET '/api/v1/tools/a\\nb': HOST_NOT_ALLOWED: Host 'evil.example'"
    )
    assert token.startswith("Refused GET '/api/v1/sessions': UNAUTHORIZED: ")
    assert "t0psecret" not in it.log
    assert "guessed" not in it.log


async def test_nothing_is_told_of_refused_requests_otherwise(tmp_path: Path):
    async with running_server(data_dir=tmp_path) as server:
        assert (await server.get("/sessions", headers={"Host": "evil.example"}))[0] == 403
    assert "evil.example" not in server.log


SANE = ["a", "8c1d-42", "Root=1-67891233-abcdef", "x" * 128, "a/b:c+d@e~f.g_h"]
ODD = ["", "two words", "x" * 129, "a,b", "b\u00e9", '"q"', "<b>", "a;b", "%0a"]


async def test_an_answer_has_the_id_of_its_request(tmp_path: Path, ollama: FakeOllama):
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session()
        asked: list[tuple[str, str, dict[str, str]]] = [
            ("GET", "/sessions", {}),
            ("GET", "/nowhere", {}),
            ("DELETE", "/health", {}),
            ("GET", "/sessions", {"Host": "evil.example"}),
            ("POST", f"/chat/{session}/stream", {"Content-Type": "application/json"}),
        ]

        async def answered(method: str, path: str, headers: Any) -> list[str]:
            body = b'{"message": "Hi"}' if method == "POST" else None
            async with server.http.request(
                method, server.api + path, headers=headers, data=body
            ) as response:
                await response.read()
                return response.headers.getall("X-Request-ID")

        for method, path, headers in asked:
            given = [*headers.items(), ("X-Request-ID", "mine")]
            assert await answered(method, path, given) == ["mine"]
            [made] = await answered(method, path, headers)
            assert MADE.fullmatch(made)
            [other] = await answered(method, path, [*given, ("X-Request-ID", "mine")])
            assert MADE.fullmatch(other)
            assert other != made
        for sane in SANE:
            assert await answered("GET", "/health", {"X-Request-ID": sane}) == [sane]
        for odd in ODD:
            [made] = await answered("GET", "/health", {"X-Request-ID": odd})
            assert MADE.fullmatch(made)


async def test_pages_of_allowed_origins_may_name_their_requests(tmp_path: Path):
    page = "http://localhost:5173"
    headers = {
        "Origin": page,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "x-request-id",
    }
    async with running_server(data_dir=tmp_path, cors_origins=page) as server:
        url = f"{server.api}/sessions"
        async with server.http.options(url, headers=headers) as response:
            assert "x-request-id" in response.headers["Access-Control-Allow-Headers"]
        async with server.http.get(url, headers={"Origin": page}) as response:
            assert "X-Request-ID" in response.headers["Access-Control-Expose-Headers"]


def entries(server: Server, words: str) -> list[dict[str, Any]]:
    objects = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    return [each for each in objects if words in each["message"]]


async def test_each_line_has_the_ids_of_its_request_session_and_run(
    tmp_path: Path, ollama: FakeOllama
):
    async with running_server(data_dir=tmp_path, ollama=ollama, log_format="json") as server:
        session = await server.new_session()
        ollama.reply(error="boom\nagain")
        body, named = {"message": "Hi"}, {"X-Request-ID": "by-http"}
        status, _ = await server.post(f"/chat/{session}", body, headers=named)
        assert status == 502
        await server.saw("Turn failed", 1)

        ollama.reply(error="boom")
        options = {"additional_headers": {"X-Request-ID": "by-socket"}}
        async with socket(server, options=options, session_id=session) as client:
            assert client.connection.response is not None
            assert client.connection.response.headers["X-Request-ID"] == "by-socket"
            reply = await client.ask("message", {"message": "Hi"})
            await server.saw("Turn failed", 2)
        async with server.http.get(
            server.url + MCP_PATH, headers={"X-Request-ID": "mcp"}
        ) as answer:
            assert answer.headers["X-Request-ID"] == "mcp"

        first, second = entries(server, "Turn failed")
        outside = [each for each in entries(server, "") if "request_id" not in each]
    assert (first["request_id"], first["session_id"]) == ("by-http", session)
    assert f"run={first['run_id']}" in first["message"]
    assert (first["level"], first["logger"]) == ("WARNING", "mochi_server.chat.runs.registry")
    assert first["process"] == server.pid
    assert (second["request_id"], second["session_id"]) == ("by-socket", session)
    assert second["run_id"] == reply["data"]["run_id"] != first["run_id"]
    assert not [each for each in outside if "session_id" in each or "run_id" in each]


def test_a_record_is_one_line_whatever_it_holds():
    set_log_ids("of-a-session")
    error = ValueError("two\nlines of caf\u00e9 \udcff")
    trace = (ValueError, error, None)
    record = logging.LogRecord("name", logging.ERROR, "", 0, "It %s", (error,), trace)
    line = JSONFormatter().format(record)
    set_log_ids(None)
    assert "\n" not in line
    assert line.isascii()
    entry = json.loads(line)
    assert entry["message"] == "It two\nlines of caf\u00e9 \udcff"
    assert entry["exception"].startswith("ValueError: two")
    assert entry["session_id"] == "of-a-session"
    assert "run_id" not in entry
