"""HTTP for the vendors' SDKs: clients, addresses, times to wait, answers that are no stream.

The SDKs bring ``httpx`` or, in later versions, ``httpx2``, which have the same interface.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from importlib import import_module
from math import ceil
from types import ModuleType
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ...core.json_text import parse_json
from ...core.limits import httpx_limits

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0
"""Longest silence, before the first byte (queue, loading, the prompt) and within a reply."""
KEPT_CONNECTIONS: Final = 100
"""Idle connections that are kept; the HTTP libraries close them after five seconds."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_MAX_WAIT: Final = 10**9
_EVENT_STREAM: Final = "text/event-stream"
_KEPT_BYTES: Final = 65_536


def http_options(http: Any, url: str | None) -> dict[str, Any]:  # noqa: ANN401
    """Return arguments for a client of an HTTP library that asks the service at ``url``.

    Each stream holds a connection, and none waits for another. A server on this machine is not
    sought behind a proxy of the environment. Redirects would carry keys and texts elsewhere.
    """
    parts = split_address(url or "")
    hosts = {host.strip("[]") for host in _LOOPBACK}
    is_here = parts is not None and parts.scheme == "http" and parts.hostname in hosts
    return {
        **httpx_limits(),
        "limits": http.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
        "mounts": {f"all://{host}": None for host in _LOOPBACK},
        # With TLS the environment may have certificates, without it nothing but proxies.
        "trust_env": not is_here,
    }


def http_client_of(sdk: Any, url: str | None) -> Any:  # noqa: ANN401 - as above
    """Make the HTTP client of an SDK, since the SDK's own warns at its end if making it failed."""
    return sdk.DefaultAsyncHttpxClient(**http_options(http_library_of(sdk), url))


def http_library_of(sdk: Any) -> ModuleType:  # noqa: ANN401 - as above
    """Return the HTTP library that an SDK is made for."""
    names = (each.__module__.partition(".")[0] for each in sdk.DefaultAsyncHttpxClient.__mro__)
    return import_module(next(name for name in names if name.startswith("httpx")))


def http_errors() -> tuple[type[Exception], ...]:
    """Return what the HTTP libraries raise; SDKs let it through in the middle of a stream."""
    loaded = [sys.modules.get(name) for name in ("httpx", "httpx2")]
    names = ("HTTPError", "InvalidURL")
    return tuple(getattr(module, name) for module in loaded if module for name in names)


def split_address(url: str) -> SplitResult | None:
    """Return the parts of an HTTP address; None where it is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def without_login(parts: SplitResult) -> str:
    """Return the address without its login and query."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds to wait that an answer names, rounded up."""
    seconds = seconds_of(headers.get("retry-after"))
    if seconds is None and (milliseconds := headers.get("retry-after-ms", "")).isdecimal():
        seconds = seconds_of(f"{milliseconds}e-3")
    return seconds


def seconds_of(header: str | None) -> int | None:
    """Return the seconds of a ``Retry-After``, which counts them or names the instant."""
    for parse in (float, _seconds_until):
        with suppress(ValueError, OverflowError):
            return min(max(0, ceil(parse(header or ""))), _MAX_WAIT)
    return None


def _seconds_until(date: str) -> float:
    until = parsedate_to_datetime(date)
    if until.tzinfo is None:  # "-0000"
        until = until.replace(tzinfo=timezone.utc)
    return (until - datetime.now(timezone.utc)).total_seconds()


class UnexpectedBody:
    """Keeps the body of an answer that does not call itself a stream of events.

    The SDKs pass over all that is no event: of an error with status 200, or of a page, nothing
    would be left but a stream without an end.
    """

    has_events = False
    """Whether there were events all the same; set by whoever reads the stream."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - the HTTP library's
        self.content_type = str(response.headers.get("content-type") or "")
        self._kept = bytearray()
        if not self.content_type.lower().startswith(_EVENT_STREAM):
            self._read = response.aiter_bytes
            response.aiter_bytes = self._listen

    async def _listen(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._read()) as pieces:
            async for data in pieces:
                self._kept += data[: _KEPT_BYTES - len(self._kept)]
                yield data

    @property
    def content(self) -> object:
        """The body, parsed where it is JSON; None for an empty one."""
        text = self._kept.decode("utf-8", "replace").strip()
        try:
            return parse_json(text) if text else None
        except ValueError:
            return text
