"""A client of the HTTP API: requests, and the events of runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio

from ..core.json_text import parse_json
from ..errors import JSONObject
from .http1 import FAILURES, Response, send_request

SILENCE_SECONDS: Final = 75.0
"""Longest silence of a stream: the server sends a comment each 15 seconds, unless set otherwise."""

RECONNECT_SECONDS: Final = 60.0
"""How long a lost server is tried again."""

RECONNECT_PAUSE_SECONDS: Final = 0.5

_UNAUTHORIZED: Final = 401
_NO_CONTENT: Final = 204
_BAD_REQUEST: Final = 400
_AWAY: Final = (502, 503, 504)
"""What a proxy answers while the server starts, or the server itself without its database."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, line separators, marks that turn the direction of writing, halves of characters."""


class RequestRefused(Exception):
    """The server refused a request; the text is its code and its message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status = status
        self.code = code


class ServerUnreachable(Exception):
    """Nothing answers at the address, or the connection broke."""


def may_come_back(error: RequestRefused | ServerUnreachable) -> bool:
    """Return whether the server is away, perhaps only for a while."""
    return isinstance(error, ServerUnreachable) or error.status in _AWAY


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One server-sent event: its number in the run, its name, its data."""

    number: int
    name: str
    data: JSONObject


def safe_text(text: str) -> str:
    """Return text of others without what could move the cursor or turn the writing around."""
    return _UNSAFE.sub(" ", text.replace("\r\n", "\n"))


class Client:
    """The HTTP API of one server.

    Args:
        url: Address of the server, without ``/api/v1``.
        token: Value of ``MOCHI_API_TOKEN``, if the server wants one.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def answers(self) -> bool:
        """Return whether a mochi-server answers at the address.

        Where that only redirects to https, as proxies do, the secure address is used from now on.
        """
        try:
            async with self._send("GET", "/health") as response:
                location = response.headers.get("location", "").removesuffix("/api/v1/health")
            if self._is_same_with_https(location):
                self.url = location
            health = await self.request("GET", "/health")
        except (RequestRefused, ServerUnreachable):
            return False
        return isinstance(health, dict) and "providers" in health

    def _is_same_with_https(self, url: str) -> bool:
        is_upgrade = self.url.startswith("http:") and url.startswith("https:")
        return is_upgrade and urlsplit(self.url).hostname == urlsplit(url).hostname

    async def request(
        self, method: str, path: str, body: JSONObject | None = None, **query: str | int
    ) -> Any:  # noqa: ANN401 - any JSON
        """Send a request below ``/api/v1`` and return the JSON of its answer, or None.

        Raises:
            RequestRefused: The status is an error.
            ServerUnreachable: The server does not answer, or not with JSON.
        """
        content = await self.download(method, path, body, **query)
        try:
            return parse_json(content) if content else None
        except ValueError as error:
            raise ServerUnreachable(f"{self.url} is not a mochi-server.") from error

    async def download(
        self, method: str, path: str, body: JSONObject | None = None, **query: str | int
    ) -> bytes:
        """Send a request below ``/api/v1`` and return its answer as it is.

        Raises:
            RequestRefused: The status is an error.
            ServerUnreachable: The server does not answer.
        """
        async with self._send(method, path, body, query) as response:
            content = await response.read()
        _check(response.status, content)
        return content

    async def run_events(self, run_id: str) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a run from its first to ``done``; connect again when that breaks off.

        Raises:
            RequestRefused: The run is not known, or not any more.
            ServerUnreachable: The server did not come back for RECONNECT_SECONDS.
        """
        after, lost_at = 0, None
        while True:
            try:
                path = f"/runs/{run_id}/events"
                async with aclosing(self.events("GET", path, after=after)) as events:
                    async for event in events:
                        after, lost_at = event.number, None
                        yield event
            except (ServerUnreachable, RequestRefused) as error:  # noqa: PERF203 - anew each time
                if not may_come_back(error):
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > RECONNECT_SECONDS:
                    raise
                await anyio.sleep(RECONNECT_PAUSE_SECONDS)
            else:
                return

    async def events(
        self, method: str, path: str, body: JSONObject | None = None, **query: str | int
    ) -> AsyncGenerator[StreamEvent, None]:
        """Send a request below ``/api/v1`` and yield the events of its answer to ``done``.

        Raises:
            RequestRefused: The status is an error.
            ServerUnreachable: The server does not answer, or the stream breaks off.
        """
        async with self._send(method, path, body, query, silence=SILENCE_SECONDS) as response:
            if response.status == _NO_CONTENT:
                return
            if response.status >= _BAD_REQUEST:
                _check(response.status, await response.read())
            async for event in _events_of(response.chunks()):
                yield event
                if event.name == "done":
                    return
        raise ServerUnreachable("The stream broke off.")

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        body: JSONObject | None = None,
        query: Mapping[str, str | int] | None = None,
        silence: float | None = None,
    ) -> AsyncGenerator[Response, None]:
        url = f"{self.url}/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        headers, content = self._headers, b""
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
            content = json.dumps(body).encode()
        try:
            async with send_request(
                method, url, headers=headers, body=content, silence_seconds=silence
            ) as response:
                yield response
        except FAILURES as error:
            text = f"{self.url} does not answer: {str(error) or type(error).__name__}"
            raise ServerUnreachable(text) from error


def path_of(*parts: str) -> str:
    """Return the parts as a path, such as ``/sessions/ID/messages``."""
    return "".join(f"/{quote(part, safe=':')}" for part in parts)


def _check(status: int, content: bytes) -> None:
    if status < _BAD_REQUEST:
        return
    try:
        error = parse_json(content)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "", f"The server answers with status {status}."
    if status == _UNAUTHORIZED:
        message = f"{message} MOCHI_API_TOKEN has the token that this program sends."
    raise RequestRefused(status, code, message)


async def _events_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[StreamEvent]:
    """Yield the events of a stream, without its comments."""
    buffer = b""
    async for chunk in chunks:
        *frames, buffer = (buffer + chunk).split(b"\n\n")
        for frame in frames:
            fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
            if b"event" in fields:
                yield StreamEvent(
                    number=int(fields.get(b"id", b"0")),
                    name=fields[b"event"].decode(),
                    data=cast("JSONObject", parse_json(fields[b"data"])),
                )
