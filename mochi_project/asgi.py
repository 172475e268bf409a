"""The ASGI application: ``uvicorn mochi_project.asgi:application``."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager

import django
from django.conf import settings

from mochi_project import use_own_settings
from mochi_server.errors import NotFound

use_own_settings()
if not hasattr(settings, "MOCHI"):
    raise RuntimeError(
        "This process belongs to another Django project, and Django has one project in a process. "
        "Run mochi-server in a process of its own, with a proxy in front of both, or use "
        "mochi_server.Runtime, which needs no Django (docs/how-to/mount-in-another-application.md)."
    )
django.setup(set_prefix=False)

from .http.gate import Gate, Receive, Scope, Send, refuse  # noqa: E402 - after the set-up
from .http.handler import MochiASGIHandler  # noqa: E402
from .http.lifespan import Lifespan  # noqa: E402


class Protocols:
    """The applications of the protocols: http, websocket, lifespan."""

    def __init__(self) -> None:
        self.http = MochiASGIHandler()
        self.lifespan = Lifespan()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Hand on to the protocol's application; without a coroutine, which would cost time."""
        kind = scope["type"]
        if kind == "http":
            self.lifespan.start()
            return self.http(scope, receive, send)
        if kind == "lifespan":
            return self.lifespan(receive, send)
        return refuse(scope, send, NotFound(path=scope.get("path", "")), [])


class Application(Gate):
    """The protocols, behind the gate."""

    def __init__(self, protocols: Protocols) -> None:
        super().__init__(protocols, settings.MOCHI)
        self._lifespan = protocols.lifespan

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start and end with a program that mounts the application."""
        return self._lifespan.running()


application = Application(Protocols())
