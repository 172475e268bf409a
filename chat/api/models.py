"""``/models``: the models that can chat, and which providers answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from chat.schemas.models import AvailableModels, ListedModel, ListedModels, ModelCheck
from mochi_project.openapi import PROVIDER_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionModel
from mochi_server.errors import InvalidRequest, ModelNotFound
from mochi_server.providers.base import ModelInfo
from mochi_server.providers.registry import ModelList
from mochi_server.providers.status import StatusReport

router = Router()

Probe = Annotated[Literal["true", "false"], Query(example="false")]
"""Whether each model is asked, which costs vendors' tokens."""


async def read_status(probe: str, *, refresh: bool) -> StatusReport:
    """Return what the providers have, and with ``probe`` whether each model answers."""
    checks = get_runtime().provider_checks
    status = checks.status_of_models if probe == "true" else checks.status
    return await status.read(refresh=refresh)


@router.get(
    "",
    response=ListedModels,
    summary="List the models",
    openapi_extra=documented(*PROVIDER_ERRORS),
)
async def list_models(request: HttpRequest) -> ModelList:
    """Models that can chat. A provider that does not answer is named under `problems`."""
    return await get_runtime().providers.list_models()


@router.get(
    "/available",
    response=AvailableModels,
    exclude_unset=True,
    summary="List the models of each configured provider",
    openapi_extra=documented(InvalidRequest),
)
async def list_available_models(request: HttpRequest, probe: Probe = "false") -> dict[str, Any]:
    """Of at most a minute ago. A provider that hangs is waited for three seconds.

    With `probe=true` every model is asked now, for at most 30 seconds; one that does not answer is
    under `problems`. `/api/models/available` is the same.
    """
    report = await read_status(probe, refresh=False)
    answers = report.providers.values()
    status = {name: model for one in answers for name, model in one.model_status.items()}
    problems = [*(one.problem for one in answers), *(model.problem for model in status.values())]
    return {
        "providers": {
            alias: [model for model in one.models or () if status[model.name].available]
            for alias, one in report.providers.items()
            if one.configured
        },
        "problems": [problem for problem in problems if problem is not None],
        "checked_at": report.checked_at,
    }


@router.get(
    "/check",
    response=ModelCheck,
    exclude_unset=True,
    summary="Which providers are configured and answer, and how fast",
    openapi_extra=documented(InvalidRequest),
)
async def check_models(request: HttpRequest, probe: Probe = "false") -> StatusReport:
    """Every provider, asked now and side by side; one that hangs is waited for three seconds.

    With `probe=true` every model is asked as well, for at most 30 seconds. `/api/models/check` is
    the same.
    """
    return await read_status(probe, refresh=True)


@router.get(
    "/{path:model_name}",
    response=ListedModel,
    summary="Read one model",
    openapi_extra=documented(ModelNotFound, *PROVIDER_ERRORS),
)
async def read_model(request: HttpRequest, model_name: SessionModel) -> ModelInfo:
    """The name as in the list; `:` and `/` may stand in the path as they are."""
    return await get_runtime().providers.show_model(model_name)
