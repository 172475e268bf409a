"""Secrets of servers are in no error, no line of their logs, and no log of ours."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.mcp.transports.log import LOG_LINE, ServerLog
from tests.support.mcp import Wire, mcp_source, tool, write_config
from tests.support.waiting import until

SECRETS = {
    "PROGRAM_PART": "s3cret-program",
    "HEADER_KEY": "s3cret-header",
    "QUERY_KEY": "s3cret/query key",
    "PROCESS_KEY": "s3cret-process\nand-its-s3cond-line",
}
LITERAL = "s3cret-literal"
SPOILED = "import os, sys; sys.exit(os.environ['KEY'] + sys.argv[2])"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Refuse a request, with all that it said."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    writer.write(status + f"Content-Length: {len(head)}\r\n\r\n".encode() + head)
    await writer.drain()
    writer.close()


async def test_no_error_and_no_log_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    refused = {"code": -1, "message": f"bad {LITERAL}"}
    calls = {
        "a": {"error": f"bad {LITERAL}"},
        "b": {"raw": json.dumps({"jsonrpc": "2.0", "id": "ID", "error": refused})},
    }
    calls["b"]["raw"] = calls["b"]["raw"].replace('"ID"', "ID")
    wire = Wire(tmp_path / "plan", tools=[tool("a"), tool("b")], calls=calls)
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        query = f"{url}?key={quote(SECRETS['QUERY_KEY'])}"
        headers = {"Authorization": "Bearer ${HEADER_KEY}", "X-Key": LITERAL}
        write_config(
            tmp_path,
            missing={"command": "./${PROGRAM_PART}/x"},
            spoiled={
                "command": sys.executable,
                "args": ["-c", SPOILED, "--token", LITERAL],
                "env": {"KEY": "${PROCESS_KEY}"},
            },
            stream={"type": "sse", "url": query, "headers": headers},
            modern={"type": "http", "url": query, "headers": headers},
            wire={**wire.entry(), "env": {"API_KEY": LITERAL}},
        )
        async with mcp_source(tmp_path) as source:
            for name in ("wire__a", "wire__b"):
                with pytest.raises(ToolFailed, match="bad …"):
                    await source.call(name)
            statuses = await until(
                source.servers.status,
                lambda servers: sum(each.state == "failed" for each in servers) == 4,
            )
            texts = [f"{each.name}: {each.last_error}" for each in statuses]
            texts += [line for each in statuses for line in source.servers.log_of(each.name)]
            texts += [str(each) for each in source.problems()]
    shown = "\n".join([*texts, caplog.text])
    assert "missing: there is no program './…/x'" in shown
    assert "spoiled: its process ended with exit code 1 (…" in shown
    assert "s3c" not in shown, shown
    assert quote(SECRETS["QUERY_KEY"]) not in shown


def test_a_long_line_is_cut_behind_a_secret() -> None:
    log = ServerLog()
    log.secrets.add(["x" * 100, "1", ""])
    log.feed(b"a" * (LOG_LINE - 10) + b"x" * 50)
    log.feed(b"x" * 50 + b"b" * LOG_LINE)
    log.feed(b"c\n1 is no secret\n")
    assert list(log.lines) == ["a" * (LOG_LINE - 10) + "…", "1 is no secret"]
