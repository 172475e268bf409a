"""Bytes to a server, and what comes back, without any HTTP library in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio

from tests.support.server import Server

ANSWER_SECONDS = 30
PATIENCE_SECONDS = 0.15
"""How long a connection that may be waiting for more stays open before we close our half."""
AT_ONCE = 16
NO_SNIFFING = b"\r\nx-content-type-options: nosniff\r\n"


@dataclass(frozen=True)
class Hostile:
    """Something to send on a connection of its own."""

    data: bytes
    whole: bool = True
    """Whether it is a complete request, which must have an answer."""
    statuses: frozenset[int] = frozenset()
    """The answers that are right; any that is no server error if empty."""


@dataclass
class Answer:
    """What came back until the server closed the connection."""

    sent: Hostile
    raw: bytes = b""
    heads: list[int] = field(default_factory=list)
    """The statuses, interim ones too."""

    @property
    def status(self) -> int:
        return self.heads[-1] if self.heads else 0

    @property
    def json(self) -> Any:
        """The body of an answer that was sent in one piece."""
        return json.loads(self.raw.rpartition(b"\r\n\r\n")[2])


def request(
    method: str,
    target: str | bytes,
    body: bytes | None = None,
    *,
    headers: Iterable[bytes] = (),
    host: bytes | None = b"localhost",
) -> bytes:
    """A whole request below ``/api/v1``, after which the server closes the connection."""
    path = target if isinstance(target, bytes) else target.encode("utf-8", "surrogatepass")
    lines = [method.encode() + b" /api/v1" + path + b" HTTP/1.1", b"Connection: close"]
    if host is not None:
        lines.append(b"Host: " + host)
    lines += headers
    if body is not None:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


async def exchange(server: Server, hostile: Hostile) -> Answer:
    """Send it and read until the server closes; both within a bound."""
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    answer = Answer(hostile)
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            await _send(writer, hostile.data)
            if not hostile.whole:
                with anyio.move_on_after(PATIENCE_SECONDS):
                    await _read(reader, answer)
                _no_more(writer)
            await _read(reader, answer)
    except TimeoutError:
        raise AssertionError(f"neither answered nor closed: {shown(hostile)}") from None
    finally:
        writer.transport.abort()
    answer.heads = statuses_of(answer.raw)
    return answer


def _no_more(writer: asyncio.StreamWriter) -> None:
    try:
        writer.write_eof()
    except OSError:  # closed by the server meanwhile
        return


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        writer.write(data)
        await writer.drain()
    except ConnectionError:  # it has seen enough; the answer can still be read
        return


async def _read(reader: asyncio.StreamReader, answer: Answer) -> None:
    try:
        while part := await reader.read(65536):
            answer.raw += part
    except ConnectionError:
        return


def statuses_of(raw: bytes) -> list[int]:
    """The statuses of the answers on a connection."""
    lines = raw.split(b"HTTP/1.1 ")
    return [int(line[:3]) for line in lines[1:] if line[:3].isdigit()]


def shown(hostile: Hostile) -> str:
    """A request as a failure names it."""
    return repr(hostile.data[:300])


def problem(answer: Answer) -> str | None:
    """What is wrong with an answer, if something is."""
    if not answer.heads:
        return "no answer" if answer.sent.whole else None
    if not _is_right(answer):
        return f"answered with {answer.heads}"
    if answer.sent.data.startswith(b"HEAD ") and not answer.raw.endswith(b"\r\n\r\n"):
        return "a body in the answer to HEAD"
    if b"Traceback" in answer.raw:
        return "a trace"
    return _of_content(answer)


def _of_content(answer: Answer) -> str | None:
    answers = sum(status >= 200 for status in answer.heads)
    of_websockets = b"Sec-WebSocket-Key" in answer.sent.data  # a fixed text of that library
    if answer.raw.lower().count(NO_SNIFFING) != answers and not of_websockets:
        return "an answer whose type a browser may guess"
    if answer.status >= 400 and b"application/json" in answer.raw and not _is_named(answer):
        return "an error without a name"
    return None


def _is_right(answer: Answer) -> bool:
    if answer.sent.statuses:
        return answer.status in answer.sent.statuses
    return all(status < 500 for status in answer.heads)


def _is_named(answer: Answer) -> bool:
    if not answer.raw.rpartition(b"\r\n\r\n")[2]:
        return True  # of HEAD
    return set(answer.json["error"]) == {"code", "message", "details"}


async def attack(server: Server, hostiles: Sequence[Hostile]) -> list[Answer]:
    """Send all of them, some at a time; every answer must be in order."""
    answers: list[Answer] = []
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(hostile: Hostile) -> None:
        async with limit:
            answers.append(await exchange(server, hostile))

    async with anyio.create_task_group() as group:
        for hostile in hostiles:
            group.start_soon(one, hostile)
    wrong = [(found, shown(a.sent), a.raw[:300]) for a in answers if (found := problem(a))]
    assert wrong == [], f"{len(wrong)} of {len(answers)}: {wrong[:5]}\n{server.log[-3000:]}"
    return answers
