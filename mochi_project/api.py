"""The API: its routers, and the document of all of them.

Routers are imported when one of their paths is asked for first, and for the document.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ninja import NinjaAPI, Router
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from mochi_server.version import __version__

from .http.errors import install
from .http.json import ORJSONParser, ORJSONRenderer
from .http.lazy_urls import LazyUrls, Patterns
from .openapi import OfflineSwagger, complete
from .server_routes import router as server_router

DESCRIPTION = """\
Conversations with language models that run on your own machine.

Every error is `{"error": {"code", "message", "details"}}`. With `MOCHI_API_TOKEN` set, or a token
made by `mochi-server token add`, every route but `/health` and this page asks for
`Authorization: Bearer <token>`; the button Authorize sends it.
"""


class MochiAPI(NinjaAPI):
    """Ninja's API as this project configures it."""

    def __init__(self, name: str, **options: Any) -> None:  # noqa: ANN401 - ninja's
        super().__init__(
            title="mochi-server",
            version=__version__,
            description=DESCRIPTION,
            urls_namespace=name,
            parser=ORJSONParser(),
            renderer=ORJSONRenderer(),
            openapi_extra={"security": [{}, {"token": []}]},
            **options,
        )
        install(self)

    def get_content_type(self) -> str:
        return "application/json"

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the view's name as generated clients have it: ``createSession``."""
        first, *others = operation.view_func.__name__.split("_")
        return "".join([first, *map(str.title, others)])


class DocumentedAPI(MochiAPI):
    """The part that is always there, with a document of all parts.

    The document takes a third of a second to make, and is kept.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, docs=OfflineSwagger())
        self._documents: dict[str, OpenAPISchema] = {}

    def get_openapi_schema(
        self,
        *,
        path_prefix: str | None = None,
        path_params: dict[str, Any] | None = None,
    ) -> OpenAPISchema:
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        if prefix not in self._documents:
            from chat.api.events import event_schemas

            whole = MochiAPI("document")
            whole.add_router("", server_router)
            for part in PARTS:
                for path, router, tag in part():
                    whole.add_router(path, router, tags=[tag])
            document = whole.get_openapi_schema(path_prefix=prefix)
            complete(document, event_schemas())
            self._documents[prefix] = document
        return self._documents[prefix]


Routes = Iterable[tuple[str, Router, str]]
"""Routers, each with its path and its tag; the first one that has a path gets the request."""


def _models() -> Routes:
    from chat.api.models import router

    yield "/models", router, "models"


def _sessions() -> Routes:
    from sessions_app.api import router
    from sessions_app.attachments import router as attachments_router
    from sessions_app.exports import router as exports_router
    from sessions_app.files import router as files_router
    from sessions_app.imports import router as imports_router
    from sessions_app.tags import router as tags_router
    from sessions_app.variants import router as variants_router

    yield "/sessions", imports_router, "sessions"  # before /sessions/{session_id}
    yield "/sessions", exports_router, "sessions"
    yield "/sessions", router, "sessions"
    yield "/sessions", variants_router, "sessions"
    yield "/sessions", files_router, "files"
    yield "/sessions", attachments_router, "files"
    yield "/tags", tags_router, "sessions"


def _chat() -> Routes:
    from chat.api.chat import router
    from chat.api.simple_routes import router as simple_router

    yield "/chat", simple_router, "chat"  # before /chat/{session_id}
    yield "/chat", router, "chat"


def _runs() -> Routes:
    from chat.api.runs import router

    yield "/runs", router, "runs"


def _confirmations() -> Routes:
    from chat.api.confirmations import router, rules_router

    yield "/confirmations", router, "confirmations"
    yield "/policies", rules_router, "confirmations"


def _tools() -> Routes:
    from tools_app.api import router

    yield "/tools", router, "tools"


def _mcp() -> Routes:
    from chat.api.mcp_events import router as events_router
    from tools_app.mcp import router

    yield "/mcp", events_router, "mcp"  # before /mcp/{name}
    yield "/mcp", router, "mcp"


def _agents() -> Routes:
    from agents_app.api import router

    yield "/agents", router, "agents"


def _prompts() -> Routes:
    from prompts_app.api import router

    yield "/system-prompts", router, "system prompts"


def _presets() -> Routes:
    from prompts_app.presets import router

    yield "/presets", router, "presets"


PARTS: dict[Callable[[], Routes], tuple[str, ...]] = {
    _models: ("models",),
    _sessions: ("sessions", "tags"),
    _chat: ("chat",),
    _runs: ("runs",),
    _confirmations: ("confirmations", "policies"),
    _tools: ("tools",),
    _mcp: ("mcp",),
    _agents: ("agents",),
    _prompts: ("system-prompts",),
    _presets: ("presets",),
}
"""The parts that are imported late, with the first segments of their paths."""


def _lazy(part: Callable[[], Routes], segments: tuple[str, ...]) -> LazyUrls:
    name = part.__name__.strip("_")

    def load() -> Patterns:
        served = MochiAPI(name, openapi_url=None)
        for path, router, tag in part():
            served.add_router(path, router, tags=[tag])
        return served.urls[0]

    return LazyUrls(load, name, *segments)


api = DocumentedAPI("api")
api.add_router("", server_router)

urlpatterns: Patterns = [*api.urls[0], *(_lazy(*part) for part in PARTS.items())]
