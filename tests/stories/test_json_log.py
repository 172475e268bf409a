"""The log as JSON, for programs that read it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from mochi_server.core.logs import JSONFormatter, set_log_ids
from mochi_server.mcp_server.http import PATH as MCP_PATH
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.sockets import socket


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
