"""The API: its routers, ``/health`` and the docs page."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from django.http import HttpRequest
from ninja import NinjaAPI, Query
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from pydantic import Field

from agents_app.api import router as agents_router
from chat.api.chat import router as chat_router
from chat.api.confirmations import policies_router
from chat.api.confirmations import router as confirmations_router
from chat.api.events import event_schemas
from chat.api.mcp_events import router as mcp_events_router
from chat.api.models import router as models_router
from chat.api.runs import router as runs_router
from chat.api.simple_routes import router as simple_router
from mochi_server import __version__
from mochi_server.errors import InvalidRequest, JSONObject, ShuttingDown, StorageError
from mochi_server.providers.common.http import without_login
from prompts_app.api import router as prompts_router
from prompts_app.presets import router as presets_router
from sessions_app.api import router as sessions_router
from sessions_app.attachments import router as attachments_router
from sessions_app.exports import router as exports_router
from sessions_app.files import router as files_router
from sessions_app.imports import router as imports_router
from sessions_app.variants import router as variants_router
from tools_app.api import router as tools_router
from tools_app.mcp import router as mcp_router

from .http.errors import install
from .http.json import ORJSONParser, ORJSONRenderer
from .openapi import OfflineSwagger, complete, documented
from .runtime import get_runtime
from .schemas import Cursor, NextCursor, ResponseModel, Timestamp

DESCRIPTION = """\
Conversations with language models that run on your own machine.

Every error is `{"error": {"code", "message", "details"}}`. With `MOCHI_API_TOKEN` set, or a token
made by `mochi-server token add`, every route but `/health` and this page asks for
`Authorization: Bearer <token>`; the button Authorize sends it.
"""


class MochiAPI(NinjaAPI):
    """Ninja's API with a finished document, which takes a third of a second to make."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - ninja's
        super().__init__(**options)
        self._documents: dict[str, OpenAPISchema] = {}

    def get_content_type(self) -> str:
        return "application/json"

    def get_openapi_schema(
        self,
        *,
        path_prefix: str | None = None,
        path_params: dict[str, Any] | None = None,
    ) -> OpenAPISchema:
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        if prefix not in self._documents:
            document = super().get_openapi_schema(path_prefix=prefix)
            complete(document, event_schemas())
            self._documents[prefix] = document
        return self._documents[prefix]

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the view's name as generated clients have it: ``createSession``."""
        first, *others = operation.view_func.__name__.split("_")
        return "".join([first, *map(str.title, others)])


Level = Literal["ok", "note", "warning", "error"]


class ProviderReachability(ResponseModel):
    """Whether a provider answers."""

    reachable: bool


class HealthState(ResponseModel):
    """What a probe asks for."""

    status: Literal["ok"] = Field(examples=["ok"])


class Health(ResponseModel):
    """The state of the server."""

    status: str = Field(examples=["ok"])
    ollama_connected: bool
    ollama_host: str = Field(examples=["http://localhost:11434"])
    redis_connected: bool | None = Field(
        description="Null where no Redis is configured. Without it no call can be confirmed.",
        examples=[None],
    )
    version: str = Field(examples=[__version__])
    providers: dict[str, ProviderReachability] = Field(
        examples=[{"ollama": {"reachable": True}, "local": {"reachable": False}}]
    )


api = MochiAPI(
    title="mochi-server",
    version=__version__,
    description=DESCRIPTION,
    docs=OfflineSwagger(),
    urls_namespace="api",
    parser=ORJSONParser(),
    renderer=ORJSONRenderer(),
    openapi_extra={"security": [{}, {"token": []}]},
)
install(api)


@api.get(
    "/health",
    response=Health,
    tags=["health"],
    summary="Whether the server and its providers answer",
    openapi_extra={"security": []},
)
async def read_health(request: HttpRequest) -> Health:
    """Answers within about a second, also when a provider hangs; needs no token."""
    runtime = get_runtime()
    reachable = await runtime.provider_checks.reachability.read()
    return Health(
        status="ok",
        ollama_connected=reachable.providers.get("ollama", False),
        ollama_host=without_login(urlsplit(runtime.settings.ollama_host)),
        redis_connected=reachable.redis,
        version=__version__,
        providers={
            alias: ProviderReachability(reachable=yes) for alias, yes in reachable.providers.items()
        },
    )


class DoctorFinding(ResponseModel):
    """One thing that the doctor looked at."""

    topic: str = Field(examples=["models"])
    level: Level = Field(description="`error`: the server cannot do its work.")
    what: str = Field(examples=["ollama at http://localhost:11434: 3 models, answers in 4 ms."])
    suggestion: str | None = Field(description="What to do about it.", examples=[None])


class DoctorFindings(ResponseModel):
    """What is well with the server's data and surroundings."""

    errors: int = Field(examples=[0])
    warnings: int = Field(examples=[0])
    notes: int = Field(examples=[0])
    findings: list[DoctorFinding]


@api.get(
    "/doctor",
    response=DoctorFindings,
    tags=["health"],
    summary="Examine the server, its data and its surroundings",
)
async def examine_server(request: HttpRequest) -> JSONObject:
    """The same as `mochi-server doctor`; changes nothing, and takes seconds.

    It has paths of the server's machine, and no secrets.
    """
    from .diagnosis import report_on  # noqa: PLC0415 - takes a quarter of the start

    return (await report_on(get_runtime())).as_json()


@api.get(
    "/health/live",
    response=HealthState,
    tags=["health"],
    summary="Whether the process answers",
    openapi_extra={"security": []},
)
async def check_live(request: HttpRequest) -> HealthState:
    """For a supervisor that restarts a process which does not answer; needs no token."""
    return HealthState(status="ok")


@api.get(
    "/health/ready",
    response=HealthState,
    tags=["health"],
    summary="Whether turns can begin",
    openapi_extra={"security": [], **documented(ShuttingDown, StorageError)},
)
async def check_ready(request: HttpRequest) -> HealthState:
    """For a load balancer: an error while the process stops or its sessions cannot be reached.

    Providers are not asked. It needs no token.
    """
    await get_runtime().check_ready()
    return HealthState(status="ok")


class AuditEntry(ResponseModel):
    """What somebody has decided or changed."""

    time: Timestamp
    who: str = Field(
        description="Name of the token, or `token` (`MOCHI_API_TOKEN`), `loopback` (no token is "
        "demanded), `mcp`, `library`, `command`.",
        examples=["alice"],
    )
    address: str | None = Field(description="Of the client.", examples=["127.0.0.1"])
    request_id: str | None = Field(examples=["5a1f0c9b7d3e2468"])
    action: str = Field(examples=["delete session"])
    target: JSONObject = Field(examples=[{"session_id": "a1b2c3d4e5"}])
    outcome: Literal["done", "refused", "failed"] = Field(examples=["done"])


class AuditEntries(ResponseModel):
    """Entries, the latest first."""

    entries: list[AuditEntry]
    next_cursor: NextCursor


@api.get(
    "/audit",
    response=AuditEntries,
    tags=["audit"],
    summary="List what was decided and changed, and by whom",
    openapi_extra=documented(InvalidRequest, StorageError),
)
async def read_audit_log(
    request: HttpRequest,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most entries.")] = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """The latest first. Nothing is listed where `MOCHI_AUDIT_LOG` is off."""
    page = await get_runtime().audit.page(limit, cursor)
    return {"entries": page.entries, "next_cursor": page.next_cursor}


api.add_router("/models", models_router, tags=["models"])
api.add_router("/sessions", imports_router, tags=["sessions"])  # before /sessions/{session_id}
api.add_router("/sessions", sessions_router, tags=["sessions"])
api.add_router("/sessions", exports_router, tags=["sessions"])
api.add_router("/sessions", variants_router, tags=["sessions"])
api.add_router("/sessions", files_router, tags=["files"])
api.add_router("/sessions", attachments_router, tags=["files"])
api.add_router("/chat", simple_router, tags=["chat"])  # before /chat/{session_id}
api.add_router("/chat", chat_router, tags=["chat"])
api.add_router("/runs", runs_router, tags=["runs"])
api.add_router("/confirmations", confirmations_router, tags=["confirmations"])
api.add_router("/policies", policies_router, tags=["confirmations"])
api.add_router("/tools", tools_router, tags=["tools"])
api.add_router("/mcp", mcp_events_router, tags=["mcp"])  # before /mcp/{name}
api.add_router("/mcp", mcp_router, tags=["mcp"])
api.add_router("/agents", agents_router, tags=["agents"])
api.add_router("/system-prompts", prompts_router, tags=["system prompts"])
api.add_router("/presets", presets_router, tags=["presets"])
