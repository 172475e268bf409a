"""The gate that every request passes first: Host, Origin, site, token, size.

A pure ASGI application in front of the others, for HTTP and sockets alike. A web page elsewhere
must not be able to use a server on this machine: the Host check stops a name that was made to
point here, the Origin check stops what another site's page sends, and the check of the site stops
its GET requests, which carry no Origin: how long an answer takes says something about it.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

from mochi_server import errors
from mochi_server.config import MCP_CALLBACK_PATH, MochiServerSettings
from mochi_server.constants import LOOPBACK_HOSTS
from mochi_server.core.audit import AuditLog
from mochi_server.core.caller import LOOPBACK as NO_TOKEN
from mochi_server.core.caller import SETTING, Caller, current_caller, set_caller
from mochi_server.core.logs import begin_request, request_id
from mochi_server.core.slots import Slots
from mochi_server.core.tokens import AccessTokenFile
from mochi_server.errors import MochiError, ServerBusy

from ..openapi import ASSETS
from .body_limits import BodyLimits
from .errors import error_body, shape_path, status_of
from .page import PREFIX, public_folder
from .refusals import Refusals
from .rights import open_paths
from .wires import WIRES

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Watched = dict[bytes, bytes | None]

PAGES = frozenset({"/", "/api/v1/docs", MCP_CALLBACK_PATH})
"""Pages that a link on another site may lead to. To the last one a person comes back who has
authorized an MCP server; it does nothing without the random text that was given along."""

HEALTH_PATHS = frozenset(f"/api/v1/health{probe}" for probe in ("", "/live", "/ready"))
"""Paths that are answered however much the server has to do."""

OPEN_PATHS = {
    *open_paths(),
    *(f"/api/v1/docs/{name}" for name in ("", *ASSETS)),
}
"""Paths that need no token: they show nothing of a person's."""

METRICS_PATH = "/metrics"
"""Needs a token even where ``MOCHI_PUBLIC_DIR`` has a file of this name."""

REQUEST_ID = b"x-request-id"  # with it a client names its request; the answer repeats it
TRACE_CONTEXT = (b"traceparent", b"tracestate")  # W3C: the trace of a request
NO_SNIFFING = (b"x-content-type-options", b"nosniff")  # browsers must not guess another type

TOKEN_PROTOCOL = "bearer."  # noqa: S105 - no token
"""What a protocol that a client of a socket offers begins with, if the token follows it."""

NOBODY = Caller(name="nobody", rights=frozenset(), owner="")
"""The caller without a token where one is demanded; it may use open paths alone."""

_PORTS = {"http": 80, "https": 443}
_PAGE_SCHEME = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_OWN_SITES = frozenset({b"same-origin", b"none"})
_TOKEN_HEADERS = [wire.token_header.encode() for wire in WIRES if wire.token_header is not None]
_WATCHED = {
    *(b"host", b"origin", b"authorization", b"content-length", b"access-control-request-method"),
    *(b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", REQUEST_ID),
    *(*_TOKEN_HEADERS, *TRACE_CONTEXT),
}


class Gate:
    """Refuses requests that must not come in, with the standard error body."""

    def __init__(self, app: Application, settings: MochiServerSettings) -> None:
        self.app = app
        host = settings.host.lower().strip("[]")
        allowed = [name.lower().rstrip(".") for name in settings.allowed_hosts]
        self.hosts = LOOPBACK_HOSTS | {host} | {name.strip("[]") for name in allowed}
        self.suffixes = tuple(name for name in allowed if name.startswith("."))
        self.any_host = "*" in allowed
        address = as_address(host)
        self.any_address = address is not None and address.is_unspecified
        self.origins = frozenset(filter(None, map(origin_key, settings.cors_origins)))
        token = settings.api_token
        self.token = token.get_secret_value().strip().encode() if token is not None else None
        self.tokens = AccessTokenFile(settings.tokens_path, settings.token_use_path)
        self.owners = settings.session_owners
        self.audit = AuditLog(settings.audit_path, settings.audit_lock_path)
        self.refusals = Refusals()
        self.public = public_folder(settings)
        self.has_metrics = settings.metrics
        self.limits = BodyLimits.of(settings)
        share = settings.max_caller_share
        self.slots = {
            "http": Slots("requests", settings.max_requests, share=share),
            "websocket": Slots("WebSockets", settings.max_requests, share=share),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = watched(scope["headers"])
        begin_request(headers.get(REQUEST_ID), _trace_context(headers))
        set_caller(replace(NOBODY, address=_address_of(scope)))
        error = self.problem(scope, headers)
        with ExitStack() as stack:
            if error is None:
                error = self._take_slot(scope, stack)
            if error is None:
                await self.app(scope, receive, send)
                return
            method, path = scope.get("method", scope["type"]), inner_path(scope)
            # The message shows the client's words with repr: they begin no line of their own.
            logger.debug("Refused %s %r: %s: %s", method, path, error.code, error.message)
            if isinstance(error, errors.Unauthorized):
                token = "wrong" if any(_tokens(scope, headers)) else "none"
                await self._tell_of_refusal(f"{method} {path}", token)
            await refuse(scope, send, error, self._extra_headers(error, headers))

    async def _tell_of_refusal(self, route: str, token: str) -> None:
        if (count := self.refusals.count(current_caller().address)) is not None:
            target = {"route": route, "token": token, "requests": count}
            await self.audit.record("refuse token", "refused", **target)

    def _take_slot(self, scope: Scope, stack: ExitStack) -> MochiError | None:
        """Hold a slot for a request or a socket until the stack ends; return why there is none."""
        if inner_path(scope) not in HEALTH_PATHS:
            try:
                stack.enter_context(self.slots[scope["type"]].slot())
            except ServerBusy as error:
                return error
        return None

    def problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        return (
            self._host_problem(scope, headers)
            or self._origin_problem(scope, headers)
            or self._site_problem(scope, headers)
            or self._caller_problem(scope, headers)
            or self._size_problem(scope, headers)
            or _query_problem(scope)
        )

    def _host_problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        header = _text(headers.get(b"host"))
        if (parts := split_host(header)) is not None:
            host = parts[0]
            local = (scope.get("server") or ("",))[0]  # the address that was connected to
            if self.any_host or host in self.hosts or host == local:
                return None
            if self.suffixes and f".{host}".endswith(self.suffixes):
                return None
            # An address can never be made to point elsewhere, so a literal one is safe where the
            # server listens on all of them.
            address = as_address(host)
            if address is not None and (self.any_address or address.is_loopback):
                return None
        return errors.HostNotAllowed(host=header)

    def _origin_problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        if b"origin" not in headers:
            return None
        origin = _text(headers[b"origin"])
        key = origin_key(origin)
        if key is not None:
            scheme = _PAGE_SCHEME.get(scope.get("scheme", "http"), "")
            own = origin_key(f"{scheme}://{_text(headers.get(b'host'))}")
            if key == own or key in self.origins:
                return None
        return errors.OriginNotAllowed(origin=origin)

    def _site_problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        """Refuse requests of another origin's page that come without an Origin header.

        To a browser, every port of this machine is the same site.
        """
        site = headers.get(b"sec-fetch-site", b"none")
        if site in _OWN_SITES or self._is_cors(headers) or self._is_visit(scope, headers):
            return None
        return errors.OriginNotAllowed(
            "A page of another origin must not ask this. Add its origin to MOCHI_CORS_ORIGINS, and "
            "send the request with mode 'cors', to allow it.",
            details={"sec_fetch_site": _text(site)},
        )

    def _caller_problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        """Find out who asks, and set it for the rest of the request."""
        address = _address_of(scope)
        tokens = _tokens(scope, headers)
        if self.token is not None and any(
            hmac.compare_digest(token, self.token) for token in tokens
        ):
            set_caller(Caller(name=SETTING, address=address))
            return None
        if tokens and (token := self.tokens.find(tokens)) is not None:
            set_caller(self.tokens.caller(token, address=address, owns=self.owners))
            return None
        if self.token is None and not self.tokens.is_demanding:
            set_caller(Caller(name=NO_TOKEN, address=address))
            return None
        if self._is_open(inner_path(scope) or "/"):
            return None
        if self._is_preflight(scope, headers):
            return None  # a browser sends it without the token
        return errors.Unauthorized()

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or path.startswith(f"/{PREFIX}") or self._is_public(path)

    def _is_public(self, path: str) -> bool:
        if self.public is None or (self.has_metrics and path == METRICS_PATH):
            return False
        return self.public.find(path[1:]) is not None

    def _is_visit(self, scope: Scope, headers: Watched) -> bool:
        """Return whether a person follows a link to one of our pages, in a window of its own."""
        path = inner_path(scope).rstrip("/") or "/"
        return (
            scope.get("method") in {"GET", "HEAD"}
            and headers.get(b"sec-fetch-mode") == b"navigate"
            and headers.get(b"sec-fetch-dest") == b"document"
            and (path in PAGES or self._is_public(path))
        )

    def _is_preflight(self, scope: Scope, headers: Watched) -> bool:
        return (
            scope.get("method") == "OPTIONS"
            and b"access-control-request-method" in headers
            and self._is_cors(headers)
        )

    def _is_cors(self, headers: Watched) -> bool:
        return origin_key(_text(headers.get(b"origin"))) in self.origins

    def _size_problem(self, scope: Scope, headers: Watched) -> MochiError | None:
        length = headers.get(b"content-length") or b""
        if length.isdigit():
            limit = self.limits.of_path(inner_path(scope))
            if int(length[:20]) > limit:
                return errors.PayloadTooLarge(limit_mb=limit / 1_000_000)
        return None

    def _extra_headers(self, error: MochiError, headers: Watched) -> Headers:
        extra: Headers = []
        if isinstance(error, errors.Unauthorized):
            extra.append((b"www-authenticate", b'Bearer realm="mochi-server"'))
        if isinstance(error, errors.PayloadTooLarge):
            extra.append((b"connection", b"close"))  # the body is still on its way
        if self.origins:
            extra.append((b"vary", b"origin"))
            if self._is_cors(headers):
                origin = headers[b"origin"] or b""
                extra.append((b"access-control-allow-origin", origin))
        return extra


def watched(headers: Iterable[tuple[bytes, bytes]]) -> Watched:
    """Return the headers that the gate checks; the value of one that was sent twice is None.

    No check of a host, an origin, a site or a token accepts None. A length that is None passes: the
    body is counted when it is read.
    """
    checked: Watched = {}
    for name, value in headers:
        if name in _WATCHED:
            checked[name] = value if name not in checked else None
    return checked


def _trace_context(headers: Watched) -> dict[str, str]:
    return {name.decode(): _text(value) for name in TRACE_CONTEXT if (value := headers.get(name))}


def inner_path(scope: Scope) -> str:
    """Return the path below the place where the application is mounted, as Django takes it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _text(value: bytes | None) -> str:
    return value.decode("latin-1") if value else ""


def as_address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def split_host(header: str) -> tuple[str, str] | None:
    """Return ``(name, port)`` in lower case, without brackets; None if malformed."""
    if header.startswith("["):
        name, bracket, rest = header[1:].partition("]")
        if not bracket or as_address(name) is None or (rest and rest[0] != ":"):
            return None
        port = rest[1:]
    else:
        name, _, port = header.partition(":")
    if not name or (port and not (port.isascii() and port.isdigit())):
        return None
    if any(mark in name for mark in "/\\@?# \t"):
        return None
    return name.lower().rstrip("."), port


def origin_key(origin: str) -> tuple[str, str, int] | None:
    """Return ``(scheme, host, port)`` to compare by; None for ``null`` and other non-origins."""
    scheme, mark, host = origin.partition("://")
    scheme = scheme.lower()
    parts = split_host(host) if mark else None
    if parts is None or scheme not in _PORTS:
        return None
    return scheme, parts[0], int(parts[1][:6]) if parts[1] else _PORTS[scheme]


def _tokens(scope: Scope, headers: Watched) -> list[bytes]:
    scheme, _, token = (headers.get(b"authorization") or b"").partition(b" ")
    tokens = [token.strip()] if scheme.lower() == b"bearer" else []
    tokens += [key for name in _TOKEN_HEADERS if (key := headers.get(name)) is not None]
    if scope["type"] == "websocket":
        # A page cannot set a header: it names the token in the query, or offers it as a protocol.
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        tokens += [text.encode() for text in query.get("token", [])]
        tokens += [
            unquote_to_bytes(name[len(TOKEN_PROTOCOL) :].encode(errors="surrogateescape"))
            for name in scope.get("subprotocols", ())
            if name.startswith(TOKEN_PROTOCOL)
        ]
    return tokens


def _address_of(scope: Scope) -> str | None:
    """Return the address of the client; behind a proxy the ASGI server must be told to know it."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else None


def _query_problem(scope: Scope) -> MochiError | None:
    """Refuse bytes that Django would answer with a page of HTML."""
    if scope.get("query_string", b"").isascii():
        return None
    return errors.InvalidRequest("The query string must be percent-encoded.")


async def refuse(scope: Scope, send: Send, error: MochiError, extra: Headers) -> None:
    """Answer with the error; do not accept a socket."""
    prefix = "http"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008, "reason": error.code})
            return
        prefix = "websocket.http"
    names = (name.decode("latin-1") for name, _ in scope["headers"])
    path = shape_path(inner_path(scope), names)
    body, status = error_body(error, path), status_of(error, path)
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        NO_SNIFFING,
        (REQUEST_ID, request_id().encode()),
        *extra,
    ]
    if error.retry_after is not None:
        head.append((b"retry-after", str(error.retry_after).encode()))
    await send({"type": f"{prefix}.response.start", "status": status, "headers": head})
    await send({"type": f"{prefix}.response.body", "body": body})
