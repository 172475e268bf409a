"""Messages that are long, before the SDK makes objects of what is in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from mochi_server.tools.mcp.transports.http import limited_client
from mochi_server.tools.mcp.transports.limits import TOO_LARGE, shortened

TEXT = {"type": "text", "text": "é"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def message(*blocks: Any) -> bytes:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": blocks}}
    return json.dumps(answer, ensure_ascii=False).encode()


def content(message: bytes) -> Any:
    return json.loads(message)["result"]["content"]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("size", [7, 100_000, 10_000_000])
async def test_the_sdk_gets_few_blocks_of_many_however_they_come(kind: str, size: int) -> None:
    is_stream = kind == "text/event-stream"
    whole = message(*[TEXT] * 20_000, LINK, *[TEXT] * 10_000)
    body = b"event: message\r\ndata: " + whole + b"\r\n\r\n" if is_stream else whole

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": kind}, content=pieces())

    async with limited_client({}, transport=httpx2.MockTransport(answer)) as client:
        received = await (await client.get("http://server/")).aread()
    if is_stream:
        event, data, *rest = received.split(b"\n")
        assert (event, rest) == (b"event: message\r", [b"\r", b""])
        received = data.removeprefix(b"data:")
    first, link, last = content(received)
    assert (first["text"], link) == ("\n".join("é" * 20_000), LINK)
    assert last["text"] == "\n".join("é" * 10_000)


async def test_a_message_that_is_short_or_no_result_stays_as_it_is() -> None:
    assert await shortened(message(TEXT, TEXT)) == message(TEXT, TEXT)
    for long in (
        b'{"a": ' + b" " * 100_000,
        b'{"params":"' + b"x" * 100_000 + b'"}',
        b"[" * 99_999,
    ):
        assert await shortened(long) == long


async def test_a_message_of_too_many_values_is_an_error_of_its_request() -> None:
    answer = json.loads(await shortened(message(*[[0] * 10] * 20_000)))
    assert (answer["id"], answer["error"]["message"]) == (1, TOO_LARGE)
