"""A leaner ASGI handler for Django, made for streaming, and its middleware.

Against Django's own: no thread for logging, closing and signals; no second task for the request;
the response is closed in the loop, also when the client leaves before its first byte; a body over
the limit is refused as soon as it is too long (docs/decisions/0006-own-response-and-handler.md),
and is in memory no longer than it is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

import anyio
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase, HttpResponseNotAllowed
from django.urls import get_resolver, set_script_prefix, set_urlconf
from django.utils.decorators import async_only_middleware

from chat.streaming import EventStreamResponse, drop_connection, transport_of
from mochi_project.runtime import get_runtime
from mochi_server import errors
from mochi_server.core.aio import RoundLimiter, in_thread
from mochi_server.core.audit import Outcome, begin_details, details
from mochi_server.core.caller import current_caller
from mochi_server.core.logs import request_id, set_log_ids
from sessions_app.downloads import FileDownload

from .body_limits import UPLOADS, BodyLimits
from .errors import error_response, shape_path_of
from .gate import NO_SNIFFING, REQUEST_ID, Receive, Scope, Send, inner_path
from .rights import access_of, check_right

logger = logging.getLogger("django.request")

_NOSNIFF_NAME, _NOSNIFF_VALUE = (text.decode() for text in NO_SNIFFING)
_REQUEST_ID_NAME = REQUEST_ID.decode()

SMALL = 65_536
"""Bytes up to which a body is not counted: large bodies must not keep ordinary requests out."""

BEGINNING = 2
"""Requests of the method POST, as turns are, that begin in one round of the event loop."""

WATCH_AFTER = 0.05
"""Seconds after which a request is watched for a client that leaves; most are done by then."""


class RequestBodies:
    """The bodies of requests that are in memory now."""

    def __init__(
        self, limits: BodyLimits, *, seconds: float = 120.0, patience: float = 5.0
    ) -> None:
        """Begin with no body, and with the room that the limits allow.

        Args:
            limits: Largest sizes of one body.
            seconds: Longest wait for the end of one body.
            patience: Seconds after which a body that is still arriving is given up if others need
                its room.
        """
        self.limits = limits
        self.seconds = seconds
        self.patience = patience
        self.room = limits.room
        """Bytes that can still be taken."""
        self.arriving: dict[RequestBody, float] = {}
        """When each counted body began that has not ended yet, oldest first."""

    def make_room(self, size: int) -> bool:
        """Give up slow bodies until there is room for so many bytes; return whether there is."""
        slow = anyio.current_time() - self.patience
        for body in [body for body, began in self.arriving.items() if began < slow]:
            if size <= self.room:
                break
            body.give_up()
        return size <= self.room

    def one(self, path: str = "") -> RequestBody:
        return RequestBody(self, self.limits.of_path(path))


class RequestBody:
    """The body of one request, counted until it is released or its context ends."""

    def __init__(self, bodies: RequestBodies, limit: int) -> None:
        self._bodies = bodies
        self._limit = limit
        self._counted = 0
        self._given_up = False
        self._file: IO[bytes] | None = None

    async def read(self, receive: Receive) -> bytes | None:
        """Read the whole body; None when the client left meanwhile.

        Raises:
            PayloadTooLarge: It is longer than one may be; the rest is not read.
            ServerBusy: All bodies together are longer than they may be.
            RequestTimeout: Its end did not arrive in time.
        """
        self._began = anyio.current_time()
        try:
            with anyio.move_on_after(self._bodies.seconds) as self._scope:
                return await self._read(receive)
        finally:
            self._bodies.arriving.pop(self, None)
        if self._given_up:
            raise errors.ServerBusy(retry_after=1)
        raise errors.RequestTimeout(seconds=self._bodies.seconds)

    async def read_to_file(self, receive: Receive) -> IO[bytes] | None:
        """Write the whole body to a temporary file; None when the client left meanwhile.

        It has ten times as long as one in memory. The file ends with the context.

        Raises:
            PayloadTooLarge, RequestTimeout: as ``read``.
            StorageError: the disk is full.
        """
        self._file = file = await in_thread(TemporaryFile)
        seconds, size = 10 * self._bodies.seconds, 0
        with anyio.move_on_after(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > self._limit:
                    raise errors.PayloadTooLarge(limit_mb=self._limit / 1_000_000)
                try:
                    await in_thread(file.write, part)
                    if not message.get("more_body", False):
                        await in_thread(file.seek, 0)
                        return file
                except OSError as error:
                    reason = f"The file cannot be stored: {error.strerror}"
                    raise errors.StorageError.because(error, reason) from error
        raise errors.RequestTimeout(seconds=seconds)

    async def _read(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            self._count(len(body) + len(part))
            if message.get("more_body", False):
                body += part
            else:
                return bytes(body + part) if body else part

    def _count(self, size: int) -> None:
        bodies = self._bodies
        if size > self._limit:
            raise errors.PayloadTooLarge(limit_mb=self._limit / 1_000_000)
        if size > SMALL:
            added = size - self._counted
            if added > bodies.room and not bodies.make_room(added):
                raise errors.ServerBusy(retry_after=1)
            bodies.room -= added
            self._counted = size
            bodies.arriving[self] = self._began

    def give_up(self) -> None:
        self._given_up = True
        self._scope.cancel()
        self._bodies.arriving.pop(self)
        self.release()

    def release(self) -> None:
        self._bodies.room += self._counted
        self._counted = 0

    def __enter__(self) -> RequestBody:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        if self._file is not None:
            self._file.close()


class MochiASGIHandler(ASGIHandler):
    """Serves each HTTP request in one task."""

    def __init__(self) -> None:
        super().__init__()
        get_resolver().url_patterns  # noqa: B018 - imports what tells the paths of vendors
        self.bodies = RequestBodies(BodyLimits.of(settings.MOCHI))
        self.beginning = RoundLimiter(BEGINNING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.bodies.one(inner_path(scope)) as body:
            request, response = await self._start(scope, receive, body)
            if request is None and response is None:
                return
            watch = DisconnectWatch(receive)
            try:
                if response is None:
                    if scope["method"] == "POST":
                        await self.beginning.wait()
                    response = await self.get_response_async(request)
                response.headers[_NOSNIFF_NAME] = _NOSNIFF_VALUE
                response.headers[_REQUEST_ID_NAME] = request_id()
                if isinstance(response, EventStreamResponse):
                    request = None  # a stream would keep it for minutes
                    body.release()
                    watch.follow(response)
                    await response.send_to(send)
                else:
                    if isinstance(response, FileDownload):
                        response.transport = transport_of(send)
                    await self.send_response(response, send)
            except asyncio.CancelledError:
                stalled = getattr(response, "stalled", False)
                if not (watch.gone or stalled):
                    raise
                forget_cancellation()
                if stalled:
                    drop_connection(send)
            finally:
                watch.stop()
                if response is not None:
                    response.close()

    async def _start(
        self, scope: Scope, receive: Receive, body: RequestBody
    ) -> tuple[ASGIRequest | None, HttpResponseBase | None]:
        """Return the request, or the answer to one that is refused; neither if the client left."""
        try:
            content: IO[bytes] | None
            if inner_path(scope).rstrip("/") == UPLOADS:
                content = await body.read_to_file(receive)
            else:
                data = await body.read(receive)
                content = None if data is None else BytesIO(data)
        except errors.MochiError as error:
            response = error_response(error, inner_path(scope))
            if isinstance(error, errors.RequestTimeout):
                response["Connection"] = "close"  # nobody waits for the rest
            return None, response
        if content is None:
            return None, None
        set_script_prefix(get_script_prefix(scope))
        return ASGIRequest(scope, content), None

    async def get_response_async(self, request: Any) -> HttpResponseBase:  # noqa: ANN401
        set_urlconf(settings.ROOT_URLCONF)
        # ``get_response_async`` of Django does it as well, and takes a thread to log each answer
        # from 400 on. The name is private: tests/stories/test_private_names.py.
        response: HttpResponseBase = await self._middleware_chain(request)  # type: ignore[attr-defined]
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            logger.debug("%s %r: %s", request.method, request.path, response.status_code)
        request.close()
        return response


class DisconnectWatch:
    """Notices that the client has left, once a request takes its time."""

    __slots__ = ("_receive", "_request_task", "_response", "_task", "_timer", "gone")

    def __init__(self, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        self._receive = receive
        self._request_task = asyncio.current_task()
        self._response: EventStreamResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = loop.call_later(WATCH_AFTER, self._begin)
        self.gone = False
        """Whether this watch has cancelled its request."""

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._wait())

    def follow(self, response: EventStreamResponse) -> None:
        """From now on, end this stream instead of cancelling the request."""
        self._response = response
        if self._timer is not None:
            self._timer.cancel()
            self._begin()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._response is not None:
            self._response.end()
        elif self._request_task is not None:
            self.gone = True
            self._request_task.cancel()

    def stop(self) -> None:
        self._request_task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None  # its traceback leads here: only a garbage collection would end both


def forget_cancellation() -> None:
    """Tell asyncio that a cancellation of our own is dealt with (Python 3.11 counts them)."""
    task = asyncio.current_task()
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()


_READING = frozenset({"GET", "HEAD", "OPTIONS"})

GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@async_only_middleware
def plain_http(get_response: GetResponse) -> GetResponse:
    """Answer HEAD and OPTIONS, and paths with a slash at the end, on every route.

    HEAD is GET without its body, which the server drops; OPTIONS tells the methods. The log gets
    the ids of the session and the run that a path names.
    """

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        method = request.method or ""
        if method == "HEAD":
            request.method = "GET"
        if request.path_info != "/" and (not request.path_info or request.path_info[-1] == "/"):
            request.path_info = request.path_info.rstrip("/") or "/"
        response = await get_response(request)
        request.method = method
        if method not in _READING:
            await _write_to_audit_log(request, response.status_code)
        if isinstance(response, HttpResponseNotAllowed):
            response = _not_allowed(request, response)
        if method == "HEAD" and isinstance(response, StreamingHttpResponse):
            response.close()  # a stream may have no end
            response = HttpResponse(status=response.status_code, headers=dict(response.items()))
        elif isinstance(response, HttpResponse):
            if response.status_code in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
                del response["Content-Type"]
            else:
                response["Content-Length"] = str(len(response.content))
        return response

    middleware.process_view = _before_view  # type: ignore[attr-defined] # a hook of Django's
    return middleware


async def _before_view(
    request: HttpRequest, view: object, arguments: object, named: Mapping[str, str]
) -> HttpResponse | None:
    """Refuse what the caller has no right to; tell the log what the request is about."""
    del view, arguments
    set_log_ids(named.get("session_id"), named.get("run_id"))
    begin_details()
    if current_caller().is_confined:
        try:
            check_right(request)
        except errors.Forbidden as error:
            return error_response(error, shape_path_of(request))
    return None


async def _write_to_audit_log(request: HttpRequest, status: int) -> None:
    if (action := access_of(request).action) is None or request.resolver_match is None:
        return
    outcome: Outcome = "done"
    if status >= HTTPStatus.BAD_REQUEST:
        is_refused = status < HTTPStatus.INTERNAL_SERVER_ERROR
        outcome = "refused" if is_refused else "failed"
    target = {**request.resolver_match.kwargs, **details()}
    await get_runtime().audit.record(action, outcome, **target)


def _not_allowed(request: HttpRequest, response: HttpResponseNotAllowed) -> HttpResponse:
    method = request.method or ""
    allowed = {name.strip() for name in response["Allow"].split(",")} | {"OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    names = sorted(allowed)
    answer = HttpResponse(status=HTTPStatus.NO_CONTENT)
    if method != "OPTIONS":
        answer = error_response(
            errors.MethodNotAllowed(method=method, details={"allowed": [*names]}),
            request.path_info,
        )
    answer["Allow"] = ", ".join(names)
    return answer
