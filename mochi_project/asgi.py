"""The ASGI application: ``uvicorn mochi_project.asgi:application``."""

from __future__ import annotations

import django
from django.conf import settings

from mochi_server.config import export
from mochi_server.errors import NotFound

export({})  # names the settings module, unless somebody did
django.setup(set_prefix=False)

from .gate import Gate, Receive, Scope, Send, refuse  # noqa: E402 - after the set-up
from .handler import MochiASGIHandler  # noqa: E402
from .lifespan import Lifespan  # noqa: E402


class Protocols:
    """http | websocket | lifespan."""

    def __init__(self) -> None:
        self.http = MochiASGIHandler()
        self.lifespan = Lifespan()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on to the protocol's application."""
        kind = scope["type"]
        if kind == "http":
            self.lifespan.start()
            await self.http(scope, receive, send)
        elif kind == "lifespan":
            await self.lifespan(receive, send)
        else:
            await refuse(scope, send, NotFound(path=scope.get("path", "")), [])


application = Gate(Protocols(), settings.MOCHI)
