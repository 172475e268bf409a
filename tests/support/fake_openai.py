"""A server of OpenAI's chat completions on a raw socket: exact bytes, cuts, and who has gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SSE = "text/event-stream"
JSON = "application/json"


@dataclass(kw_only=True)
class Answer:
    """What the server sends for one request."""

    pieces: list[bytes]
    """Sent one write each."""
    status: int = 200
    content_type: str = SSE
    headers: dict[str, str] = field(default_factory=dict)
    then: str = "end"
    """``end`` of the body, ``cut`` the connection, ``hold`` it until the client goes, or
    ``drop`` it at once."""


def delta(**fields: Any) -> dict[str, Any]:
    """A chunk with a delta."""
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}  # fmt: skip


def finished(reason: str = "stop") -> dict[str, Any]:
    """The chunk that ends a choice."""
    chunk = delta()
    chunk["choices"][0]["finish_reason"] = reason
    return chunk


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The last chunk, which has no choices."""
    chunk = delta()
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {**chunk, "choices": [], "usage": {**counts, "total_tokens": prompt + completion}}


def call_delta(index: int, **fields: Any) -> dict[str, Any]:
    """A fragment of a tool call: ``id``, ``name``, ``arguments``."""
    function = {key: fields[key] for key in ("name", "arguments") if key in fields}
    call = {"index": index, "function": function}
    if "id" in fields:
        call |= {"id": fields["id"], "type": "function"}
    return delta(tool_calls=[call])


def stream(*chunks: dict[str, Any], done: bool = True, then: str = "end") -> Answer:
    """A streamed reply."""
    pieces = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Answer(pieces=[*pieces, *([b"data: [DONE]\n\n"] if done else [])], then=then)


def error(status: int, *, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    """An error with OpenAI's body."""
    return Answer(
        pieces=[json.dumps({"error": fields}).encode()],
        status=status,
        content_type=JSON,
        headers=headers or {},
    )


class FakeOpenAI:
    """Answers requests in order from ``answers``; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.client_gone = asyncio.Event()
        """Set when a client leaves while its answer is held."""
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_gone.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.paths.append(first.rsplit(" ", 1)[0])
        self.headers.append(headers)
        self.bodies.append(json.loads(body) if body else None)
        answer = self.answers.pop(0)
        if answer.then == "drop":
            return
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.content_type}\r\n{extra}"
            "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for piece in answer.pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if answer.then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif answer.then == "hold":
            await reader.read()
            self.client_gone.set()


@asynccontextmanager
async def running_fake() -> AsyncIterator[FakeOpenAI]:
    """A fake that listens on a free port of loopback."""
    fake = FakeOpenAI()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()
