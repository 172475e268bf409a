"""The API: its routers, and the document of all of them.

Routers are imported when one of their paths is asked for first, and for the document.
"""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string
from ninja import NinjaAPI
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
            from chat.api.events import event_schemas  # noqa: PLC0415 - with the document

            whole = MochiAPI("document")
            whole.add_router("", server_router)
            for routes in PARTS.values():
                _add_routers(whole, routes)
            document = whole.get_openapi_schema(path_prefix=prefix)
            complete(document, event_schemas())
            self._documents[prefix] = document
        return self._documents[prefix]


Routes = tuple[tuple[str, str, str], ...]

PARTS: dict[str, Routes] = {
    "models": (("/models", "chat.api.models.router", "models"),),
    "sessions": (
        ("/sessions", "sessions_app.imports.router", "sessions"),  # before /sessions/{session_id}
        ("/sessions", "sessions_app.exports.router", "sessions"),
        ("/sessions", "sessions_app.api.router", "sessions"),
        ("/sessions", "sessions_app.summaries.router", "sessions"),
        ("/sessions", "sessions_app.variants.router", "sessions"),
        ("/sessions", "sessions_app.files.router", "files"),
        ("/sessions", "sessions_app.attachments.router", "files"),
        ("/tags", "sessions_app.tags.router", "sessions"),
    ),
    "chat": (
        ("/chat", "chat.api.simple_routes.router", "chat"),  # before /chat/{session_id}
        ("/chat", "chat.api.chat.router", "chat"),
    ),
    "runs": (("/runs", "chat.api.runs.router", "runs"),),
    "confirmations": (
        ("/confirmations", "chat.api.confirmations.router", "confirmations"),
        ("/policies", "chat.api.confirmations.rules_router", "confirmations"),
    ),
    "tools": (("/tools", "tools_app.api.router", "tools"),),
    "mcp": (
        ("/mcp", "chat.api.mcp_events.router", "mcp"),  # before /mcp/{name}
        ("/mcp", "tools_app.mcp.router", "mcp"),
    ),
    "agents": (("/agents", "agents_app.api.router", "agents"),),
    "prompts": (("/system-prompts", "prompts_app.api.router", "system prompts"),),
    "presets": (("/presets", "prompts_app.presets.router", "presets"),),
}
"""The parts that are imported late: path, router and tag of their routes.

The first router that has a path gets the request.
"""


def _add_routers(api: NinjaAPI, routes: Routes) -> None:
    for path, router, tag in routes:
        api.add_router(path, import_string(router), tags=[tag])


def _lazy(name: str, routes: Routes) -> LazyUrls:
    def load() -> Patterns:
        served = MochiAPI(name, openapi_url=None)
        _add_routers(served, routes)
        return served.urls[0]

    return LazyUrls(load, name, *{path.strip("/") for path, _, _ in routes})


api = DocumentedAPI("api")
api.add_router("", server_router)

urlpatterns: Patterns = [*api.urls[0], *(_lazy(*part) for part in PARTS.items())]
