"""HTTP to one Ollama server, over aiohttp.

One session for each running event loop, made at first use. Connections have no limit of number:
each open reply holds one. aiohttp is imported at the first request that finds a server: that takes
a tenth of the start of this program.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import anyio
import orjson

from ..core.limits import ENCODINGS, MAX_RESPONSE, too_large
from ..core.utf8 import valid_utf8
from ..errors import JSONObject, MochiError, OllamaError, OllamaUnreachable
from .failures import failure_of_answer

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

ANSWER_SECONDS = 30.0
REFUSAL_BYTES = 2**16
READ_BUFFER = 2**16
"""Bytes; aiohttp stops reading the socket at twice this."""
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": ENCODINGS}
REQUESTS_AT_ONCE = 8
"""Requests for the details of models that run at a time; Ollama reads a file for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long to wait, in seconds."""

    connect: float = 5.0
    first_byte: float = 600.0
    """The queue, loading the model and reading the prompt come before the first byte."""
    idle: float = 300.0
    """Nothing is sent while the model writes a tool call."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how to log in there."""

    url: str
    """Without user and password, and without a slash at the end: it may be shown to anybody."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def address_of(host: str) -> Address:
    """Split an address such as ``http://user:password@host:11434``; the scheme may be missing."""
    scheme, slashes, rest = host.partition("//")
    if not slashes:
        scheme, rest = "", host
    netloc, slash, path = rest.partition("/")
    login, _, place = netloc.rpartition("@")
    url = f"{scheme}{slashes}{place}{slash}{path}".rstrip("/")
    if not login:
        return Address(url)
    user, _, password = login.partition(":")
    token = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return Address(url, {"Authorization": f"Basic {token}"})


class PerLoop(Generic[T]):
    """One ``T`` for each running event loop, made at first use.

    A client that two loops share fails with "Event loop is closed" in the second.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    def take_all(self) -> list[T]:
        """Return the objects of all loops, to be closed."""
        all_made = list(self._made.values())
        self._made.clear()
        return all_made


async def run_for_each(function: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Run a function for all items, some at a time; one that fails does not hide the others.

    Raises:
        MochiError: all of them failed; this is the first one's error.
    """
    slots = anyio.CapacityLimiter(REQUESTS_AT_ONCE)
    failures: list[MochiError] = []

    async def run(item: T) -> None:
        async with slots:
            try:
                await function(item)
            except MochiError as error:
                failures.append(error)

    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(run, item)
    if failures and len(failures) == len(items):
        raise failures[0]


class Transport:
    """Requests to one server; every failure is one of this project's errors."""

    def __init__(self, host: str, limits: TimeLimits) -> None:
        self.address = address_of(host)
        self.host = self.address.url
        self.limits = limits
        self._sessions = PerLoop(self._new_session)

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp

        connect = self.limits.connect
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={**HEADERS, **self.address.headers},
            trust_env=False,
            read_bufsize=READ_BUFFER,
        )

    async def _find_server(self) -> None:
        """Make sure that something listens there, before aiohttp is imported.

        Raises:
            OllamaUnreachable: no connection.
        """
        if "aiohttp" in sys.modules:
            return
        try:
            with anyio.fail_after(self.limits.connect):
                await _connect(self.host)
        except TimeoutError as error:
            raise self._not_connected_in_time() from error
        except OSError as error:
            raise self._not_connected(error.strerror or str(error)) from error

    async def post(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        await self._find_server()
        import aiohttp

        limit = self.limits.first_byte
        try:
            with anyio.fail_after(limit):
                return await self._sessions.get().post(
                    f"{self.host}{path}",
                    data=BytesIO(body),  # is written in parts
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            waited_for = f"{limit:g} s (MOCHI_OLLAMA_FIRST_BYTE_TIMEOUT_SECONDS)"
            raise self._unreachable(error, waited_for=waited_for) from error

    async def fetch(
        self, path: str, body: JSONObject | None = None, *, model: str | None = None
    ) -> dict[str, Any]:
        """Return the whole answer of a request that needs no model: GET, or POST with a body.

        Raises:
            OllamaUnreachable: no connection, or no answer in time.
            OllamaError, ModelNotFound, ProviderBusy: what the server says instead.
        """
        await self._find_server()
        import aiohttp

        method, data = ("GET", None) if body is None else ("POST", orjson.dumps(body))
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                async with self._sessions.get().request(
                    method, f"{self.host}{path}", data=data, allow_redirects=False
                ) as response:
                    answer = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._unreachable(error, waited_for=f"{ANSWER_SECONDS:g} s") from error
        return self._parsed(response, answer, model=model)

    async def run(self, path: str, body: JSONObject, *, model: str) -> dict[str, Any]:
        """Return the whole answer of a request for which the model is loaded and runs.

        Raises:
            MochiError: what ``fetch`` raises.
        """
        response = await self.post(path, orjson.dumps(body))
        import aiohttp

        limit = self.limits.idle
        try:
            with anyio.fail_after(limit):
                async with response:
                    answer = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            waited_for = f"{limit:g} s (MOCHI_OLLAMA_IDLE_TIMEOUT_SECONDS)"
            raise self._unreachable(error, waited_for=waited_for) from error
        return self._parsed(response, answer, model=model)

    def _parsed(
        self, response: aiohttp.ClientResponse, answer: bytes, *, model: str | None
    ) -> dict[str, Any]:
        if response.status != HTTPStatus.OK:
            raise self._refusal(response, answer, model=model)
        try:
            parsed = orjson.loads(valid_utf8(answer))
        except orjson.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            shown = answer[:300].decode(errors="replace")
            raise OllamaError(f"{self.host} does not answer as Ollama does: {shown!r}")
        return parsed

    async def read_refusal(
        self, response: aiohttp.ClientResponse, *, model: str | None
    ) -> Exception:
        """Return the error of an answer with another status, and what comes of its body in time."""
        import aiohttp

        body = b""
        with (
            contextlib.suppress(aiohttp.ClientError, OSError),
            anyio.move_on_after(min(self.limits.idle, ANSWER_SECONDS)),
        ):
            while len(body) < REFUSAL_BYTES and (data := await response.content.readany()):
                body += data
        return self._refusal(response, body[:REFUSAL_BYTES], model=model)

    def _refusal(
        self, response: aiohttp.ClientResponse, answer: bytes, *, model: str | None
    ) -> Exception:
        return failure_of_answer(
            response.status,
            answer,
            model=model,
            host=self.host,
            retry_after=response.headers.get("Retry-After"),
        )

    def _unreachable(self, error: Exception, *, waited_for: str) -> OllamaUnreachable:
        import aiohttp

        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self._not_connected_in_time()
        if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            return self._failure(f"Ollama at {self.host} did not answer within {waited_for}.")
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL)):
            cause = getattr(error, "os_error", None)
            return self._not_connected(getattr(cause, "strerror", None) or str(error))
        return self._failure(f"Ollama at {self.host} closed the connection without an answer.")

    def _not_connected_in_time(self) -> OllamaUnreachable:
        seconds = f"{self.limits.connect:g} s"
        return self._failure(f"Cannot connect to Ollama at {self.host} within {seconds}.")

    def _not_connected(self, reason: str) -> OllamaUnreachable:
        return self._failure(f"Cannot connect to Ollama at {self.host}: {reason.rstrip('.')}")

    def _failure(self, text: str) -> OllamaUnreachable:
        return OllamaUnreachable(text, details={"host": self.host})

    async def aclose(self) -> None:
        for session in self._sessions.take_all():
            await session.close()


async def _connect(url: str) -> None:
    """Connect to a server once.

    Raises:
        OSError: It does not listen, or there is none of this name.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        return  # aiohttp says what is wrong with it
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as link:
            link.settimeout(0)
            try:
                await loop.sock_connect(link, address)
            except OSError as error:
                failure = failure or error
            else:
                return
    if failure is not None:
        raise failure


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > MAX_RESPONSE:
            raise too_large(MAX_RESPONSE)
    return bytes(body)
