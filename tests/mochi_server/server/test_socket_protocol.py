"""The end of a WebSocket that neither the application nor the client wants."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
from contextlib import suppress
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.protocols.utils import ClientDisconnected

from mochi_server.server.socket_protocol import LimitedSocketProtocol
from tests.support.waiting import until

SECONDS = 30
UPGRADE = b"\r\n".join(
    [
        b"GET / HTTP/1.1",
        b"Host: localhost",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)),
        b"\r\n",
    ]
)
TOO_LARGE = b"\x81\xfe" + (2000).to_bytes(2, "big") + bytes(4)
WITHOUT_MASK = b"\x81\x01a"


class Application:
    """Sends more than the client reads, and once more when the connection is being closed."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.ended = asyncio.Event()
        self.failure: Exception | None = None
        self.codes: list[int] = []
        """With which it was told of the end."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        protocol = send.__self__
        await receive()
        await send({"type": "websocket.accept"})
        listening = asyncio.ensure_future(self._listen(receive))
        try:
            while not protocol.transport.get_write_buffer_size():
                await send({"type": "websocket.send", "text": "a" * 10_000})
            self.waits.set()
            await until(lambda: protocol.close_sent)
            await send({"type": "websocket.send", "text": "a"})
        except Exception as error:
            self.failure = error
            raise
        finally:
            await listening
            self.ended.set()

    async def _listen(self, receive: Any) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            pass
        self.codes.append(message["code"])


@pytest.mark.parametrize(
    ("sent", "code"),
    [(b"", 1011), (TOO_LARGE, 1009), (WITHOUT_MASK, 1002)],
    ids=["no pong", "a frame that is too large", "a frame without a mask"],
)
async def test_an_application_that_sends_is_told_that_the_client_is_gone(
    sent: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application()
    config = uvicorn.Config(
        application,
        ws=LimitedSocketProtocol,
        ws_max_size=1000,
        ws_ping_interval=0.2 if code == 1011 else SECONDS,
        ws_ping_timeout=0.2,
        lifespan="off",
        log_config=None,
    )
    server = uvicorn.Server(config)
    with (
        caplog.at_level(logging.ERROR),
        socket.create_server(("127.0.0.1", 0)) as listener,
        anyio.fail_after(SECONDS),
    ):
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        port = listener.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        await application.waits.wait()
        writer.write(sent)
        await application.ended.wait()
        with suppress(ConnectionError):  # it is cut
            while await reader.read(2**16):
                pass
        writer.close()
        server.should_exit = True
        await serving
    assert isinstance(application.failure, ClientDisconnected)
    assert application.codes == [code]
    assert not caplog.records
