"""Routes about the server itself: whether it answers, what is wrong with it, who changed what."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import Field

from mochi_server.doctor.findings import Level
from mochi_server.errors import InvalidRequest, JSONObject, ShuttingDown, StorageError
from mochi_server.providers.common.http import without_login
from mochi_server.version import __version__

from .openapi import documented
from .runtime import get_runtime
from .schemas import Cursor, NextCursor, ResponseModel, Timestamp

router = Router()


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


@router.get(
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


@router.get(
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


@router.get(
    "/health/live",
    response=HealthState,
    tags=["health"],
    summary="Whether the process answers",
    openapi_extra={"security": []},
)
async def check_live(request: HttpRequest) -> HealthState:
    """For a supervisor that restarts a process which does not answer; needs no token."""
    return HealthState(status="ok")


@router.get(
    "/health/ready",
    response=HealthState,
    tags=["health"],
    summary="Whether turns can begin",
    openapi_extra={"security": [], **documented(ShuttingDown)},
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


@router.get(
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
