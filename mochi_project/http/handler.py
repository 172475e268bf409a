"""A leaner ASGI handler for Django, made for streaming, and its middleware.

Against Django's own: no thread for logging, closing and signals; no second task for the request;
the response is closed in the loop, also when the client leaves before its first byte; a body over
the limit is refused as soon as it is too long (docs/decisions/0006-own-response-and-handler.md),
and is in memory no longer than it is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, HttpResponseNotAllowed
from django.urls import set_script_prefix, set_urlconf
from django.utils.decorators import async_only_middleware

from chat.streaming import EventStreamResponse
from mochi_server.core.logs import request_id
from mochi_server.errors import MochiError, RequestTimeout

from ..django_private import run_middleware
from .bodies import RequestBodies, RequestBody
from .errors import error_response, method_not_allowed
from .gate import NO_SNIFFING, REQUEST_ID, Receive, Scope, Send

logger = logging.getLogger("django.request")

_NOSNIFF_NAME, _NOSNIFF_VALUE = (text.decode() for text in NO_SNIFFING)
_REQUEST_ID_NAME = REQUEST_ID.decode()

WATCH_AFTER = 0.05
"""Seconds after which a request is watched for a client that leaves; most are done by then."""


class MochiASGIHandler(ASGIHandler):
    """Serves each HTTP request in one task."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = RequestBodies(settings.MOCHI.max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, get the response, send it; stop as soon as the client has left."""
        with self.bodies.one() as body:
            request, response = await self._start(scope, receive, body)
            if request is None and response is None:
                return
            watch = DisconnectWatch(receive)
            try:
                if request is not None:
                    response = await self.get_response_async(request)
                    request.close()
                if response is not None:
                    response.headers[_NOSNIFF_NAME] = _NOSNIFF_VALUE
                    response.headers[_REQUEST_ID_NAME] = request_id()
                if isinstance(response, EventStreamResponse):
                    request = None  # a stream would keep it for minutes
                    body.release()
                    watch.follow(response)
                    await response.send_to(send)
                elif response is not None:
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
        """Return the request, or the answer to one that is not acceptable; neither if it left."""
        try:
            content = await body.read(receive)
        except MochiError as error:
            response = error_response(error)
            if isinstance(error, RequestTimeout):
                response["Connection"] = "close"  # nobody waits for the rest
            return None, response
        if content is None:
            return None, None
        set_script_prefix(get_script_prefix(scope))
        return self.create_request(scope, BytesIO(content))

    async def get_response_async(self, request: Any) -> HttpResponseBase:  # noqa: ANN401
        """Return the response of the middleware and the view; log errors without a thread."""
        set_urlconf(settings.ROOT_URLCONF)
        response = await run_middleware(self, request)
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            logger.debug("%s %r: %s", request.method, request.path, response.status_code)
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
        """Watch no longer: the request is over."""
        self._request_task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def drop_connection(send: Send) -> None:
    """Cut the connection of a client that does not read.

    ASGI cannot say it, and a return lets the server close politely: it would wait for the client
    to read what is left, for ever (uvicorn does, also at its end). On other servers than uvicorn
    nothing happens.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:  # of asyncio or of uvloop
        transport.abort()


def forget_cancellation() -> None:
    """Tell asyncio that a cancellation of our own is dealt with (Python 3.11 counts them)."""
    task = asyncio.current_task()
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()


GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@async_only_middleware
def plain_http(get_response: GetResponse) -> GetResponse:
    """Answer HEAD and OPTIONS, and paths with a slash at the end, on every route.

    HEAD is GET without its body, which the server drops; OPTIONS tells the methods.
    """

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        method = request.method or ""
        if method == "HEAD":
            request.method = "GET"
        if request.path_info != "/" and (not request.path_info or request.path_info[-1] == "/"):
            request.path_info = request.path_info.rstrip("/") or "/"
        response = await get_response(request)
        request.method = method
        if isinstance(response, HttpResponseNotAllowed):
            response = _not_allowed(method, response)
        if isinstance(response, HttpResponse):
            if response.status_code == HTTPStatus.NO_CONTENT:
                del response["Content-Type"]
            else:
                response["Content-Length"] = str(len(response.content))
        return response

    return middleware


def _not_allowed(method: str, response: HttpResponseNotAllowed) -> HttpResponse:
    allowed = {name.strip() for name in response["Allow"].split(",")} | {"OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    if method == "OPTIONS":
        return HttpResponse(
            status=HTTPStatus.NO_CONTENT, headers={"Allow": ", ".join(sorted(allowed))}
        )
    return method_not_allowed(method, allowed)
