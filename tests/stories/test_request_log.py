"""What the log says of turns and refused requests, and by which id a request is found in it."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server

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
    async with AsyncExitStack() as stack:
        ollama = await stack.enter_async_context(FakeOllama())
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            session = await server.new_session()
            await stack.aclose()
            status, _ = await server.post(f"/chat/{session}", {"message": "Hi"})
            assert status == 502
            await server.saw("Turn failed")
            [(level, _, words)] = lines(server, "mochi_server.chat.runs.registry")
    assert level == "WARNING"
    assert re.match(f"Turn failed: session={session} {RUN} model=qwen3:14b code=OLLAMA_", words)


async def test_a_first_message_whose_model_server_is_gone_is_one_warning_too(tmp_path: Path):
    """No session can be made for it: there is no turn yet."""
    async with AsyncExitStack() as stack:
        ollama = await stack.enter_async_context(FakeOllama())
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            await stack.aclose()
            body = {"message": "Hi", "session_id": "mine", "model": "qwen3:14b"}
            status, _ = await server.post("/chat", body)
            assert status == 502
            await server.saw("Turn failed")
            [(level, _, words)] = lines(server, "mochi_server.chat.runs.registry")
    assert level == "WARNING"
    assert re.match(f"Turn failed: session=mine {RUN} model=qwen3:14b code=OLLAMA_", words)


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
