"""HTTP to one Ollama server, over aiohttp.

One session for each running event loop, made at first use. Connections have no limit of number:
each open reply holds one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp
import anyio
import orjson

from ..core.http_limits import ENCODINGS, LARGEST_RESPONSE, too_large
from ..errors import JSONObject, OllamaError, OllamaUnreachable
from .address import address_of
from .failures import failure_of_answer
from .per_loop import PerLoop

ANSWER_SECONDS = 30.0
"""Longest wait for an answer that needs no model."""
REFUSAL_BYTES = 2**16
"""Most bytes that are read of an error's text."""
READ_BUFFER = 2**16
"""Bytes; aiohttp stops reading the socket at twice this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long to wait, in seconds."""

    connect: float = 5.0
    first_byte: float = 600.0
    """Queue, load of the model and prompt come before the first byte."""
    idle: float = 300.0
    """Tool calls are generated in silence."""


class Transport:
    """Requests to one server; every failure is one of this project's errors."""

    def __init__(self, host: str, limits: Limits) -> None:
        self.address = address_of(host)
        self.host = self.address.url
        self.limits = limits
        self._sessions = PerLoop(self._new_session)

    def _new_session(self) -> aiohttp.ClientSession:
        connect = self.limits.connect
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Content-Type": "application/json",
                "Accept-Encoding": ENCODINGS,
                **self.address.headers,
            },
            trust_env=False,
            read_bufsize=READ_BUFFER,
        )

    async def post(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer.

        Raises:
            OllamaUnreachable: no connection, or no answer in time.
        """
        limit = self.limits.first_byte
        try:
            with anyio.fail_after(limit):
                return await self._sessions.get().post(
                    f"{self.host}{path}", data=body, allow_redirects=False
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self.unreachable(error, waited_for=first_byte_limit(limit)) from error

    async def fetch(
        self, path: str, body: JSONObject | None = None, *, model: str | None = None
    ) -> dict[str, Any]:
        """The whole answer of a request that needs no model: GET, or POST with a body.

        Raises:
            OllamaUnreachable: no connection, or no answer in time.
            OllamaError, ModelNotFound, ProviderBusy: what the server says instead.
        """
        method = "GET" if body is None else "POST"
        data = None if body is None else orjson.dumps(body)
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                async with self._sessions.get().request(
                    method, f"{self.host}{path}", data=data, allow_redirects=False
                ) as response:
                    answer = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self.unreachable(error, waited_for=f"{ANSWER_SECONDS:g} s") from error
        if response.status != HTTPStatus.OK:
            raise self.refusal(response, answer, model=model)
        return _object(answer, self.host)

    async def read_refusal(
        self, response: aiohttp.ClientResponse, *, model: str | None
    ) -> Exception:
        """The error of an answer whose status is not 200 and whose body has not been read.

        The status is told whatever becomes of the body: what came of it in time is used.
        """
        body = b""
        with (
            contextlib.suppress(aiohttp.ClientError, OSError),
            anyio.move_on_after(min(self.limits.idle, ANSWER_SECONDS)),
        ):
            while len(body) < REFUSAL_BYTES and (data := await response.content.readany()):
                body += data
        return self.refusal(response, body[:REFUSAL_BYTES], model=model)

    def refusal(
        self, response: aiohttp.ClientResponse, answer: bytes, *, model: str | None
    ) -> Exception:
        """The error of an answer whose status is not 200."""
        return failure_of_answer(
            response.status,
            answer,
            model=model,
            host=self.host,
            retry_after=response.headers.get("Retry-After"),
        )

    def unreachable(self, error: Exception, *, waited_for: str) -> OllamaUnreachable:
        """The error of a connection that could not be made, or that stayed silent."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            seconds = f"{self.limits.connect:g} s (MOCHI_OLLAMA_CONNECT_TIMEOUT_SECONDS)"
            text = f"Cannot connect to Ollama at {self.host} within {seconds}."
        elif isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            text = f"Ollama at {self.host} did not answer within {waited_for}."
        elif isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL)):
            text = f"Cannot connect to Ollama at {self.host}: {_reason(error)}"
        else:
            text = f"Ollama at {self.host} closed the connection without an answer."
        return OllamaUnreachable(text, details={"host": self.host})

    async def aclose(self) -> None:
        """Close the sessions; a later request makes a new one."""
        for session in self._sessions.take_all():
            await session.close()


def first_byte_limit(seconds: float) -> str:
    """The limit in words, with the setting that changes it."""
    return f"{seconds:g} s (MOCHI_OLLAMA_FIRST_BYTE_TIMEOUT_SECONDS)"


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", None)
    return (getattr(cause, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole body.

    Raises:
        ProviderError: it is too large.
    """
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)
    return bytes(body)


def _object(answer: bytes, host: str) -> dict[str, Any]:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        shown = answer[:300].decode(errors="replace")
        raise OllamaError(f"{host} does not answer as Ollama does: {shown!r}")
    return found
