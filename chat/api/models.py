"""``/models``: what there is to talk to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat.schemas.chat import MODEL, PROBLEM, Model, ModelList
from chat.schemas.models import AVAILABLE, CHECK, AvailableModels, ModelCheck
from mochi_project.openapi import OF_PROVIDERS, documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import InvalidRequest, ModelNotFound
from mochi_server.providers.base import ModelInfo
from mochi_server.providers.status import ProviderStatus, StatusReport

router = Router()

Probe = Literal["true", "false"]
"""Whether each model is asked, which costs vendors' tokens."""


def shown(model: ModelInfo) -> dict[str, Any]:
    """A model as the API shows it."""
    data = asdict(model)
    if model.size_mb is not None:
        data["size_mb"] = round(model.size_mb, 1)
    return data


def checked(one: ProviderStatus) -> dict[str, Any]:
    """A provider as ``/models/check`` shows it."""
    return {
        "configured": one.configured,
        "reachable": one.reachable,
        "latency_ms": one.latency_ms,
        "models": None if one.models is None else len(one.models),
        "problem": one.problem,
        "model_status": {name: asdict(model) for name, model in one.model_status.items()},
    }


async def read_status(probe: Probe, *, refresh: bool) -> StatusReport:
    """Return what the providers have, and with ``probe`` whether each model answers."""
    checks = get_runtime().provider_checks
    status = checks.status_of_models if probe == "true" else checks.status
    return await status.read(refresh=refresh)


@router.get(
    "",
    response=ModelList,
    summary="List the models",
    openapi_extra=documented(*OF_PROVIDERS, example={"models": [MODEL], "problems": [PROBLEM]}),
)
async def list_models(request: HttpRequest) -> HttpResponse:
    """Models that can chat. A provider that does not answer is named under `problems`."""
    found = await get_runtime().providers.list_models()
    return json_response(
        {"models": [shown(model) for model in found.models], "problems": found.problems}
    )


@router.get(
    "/available",
    response=AvailableModels,
    summary="List the models of each configured provider",
    openapi_extra=documented(InvalidRequest, example=AVAILABLE, parameters={"probe": "false"}),
)
async def list_available_models(request: HttpRequest, probe: Probe = "false") -> HttpResponse:
    """Of at most a minute ago. A provider that hangs is waited for three seconds.

    With `probe=true` every model is asked now, for at most 30 seconds; one that does not answer is
    under `problems`. `/api/models/available` is the same.
    """
    found = await read_status(probe, refresh=False)
    answers = found.providers.values()
    status = {name: model for one in answers for name, model in one.model_status.items()}
    problems = [*(one.problem for one in answers), *(model.problem for model in status.values())]
    return json_response(
        {
            "providers": {
                alias: [shown(model) for model in one.models or () if status[model.name].available]
                for alias, one in found.providers.items()
                if one.configured
            },
            "problems": [problem for problem in problems if problem is not None],
            "checked_at": found.checked_at,
        }
    )


@router.get(
    "/check",
    response=ModelCheck,
    summary="Which providers are configured and answer, and how fast",
    openapi_extra=documented(InvalidRequest, example=CHECK, parameters={"probe": "false"}),
)
async def check_models(request: HttpRequest, probe: Probe = "false") -> HttpResponse:
    """Every provider, asked now and side by side; one that hangs is waited for three seconds.

    With `probe=true` every model is asked as well, for at most 30 seconds. `/api/models/check` is
    the same.
    """
    found = await read_status(probe, refresh=True)
    return json_response(
        {
            "providers": {alias: checked(one) for alias, one in found.providers.items()},
            "checked_at": found.checked_at,
        }
    )


@router.get(
    "/{path:model_name}",
    response=Model,
    summary="Read one model",
    openapi_extra=documented(
        ModelNotFound,
        *OF_PROVIDERS,
        example=MODEL,
        parameters={"model_name": "qwen3:14b"},
    ),
)
async def read_model(request: HttpRequest, model_name: str) -> HttpResponse:
    """The name as in the list; `:` and `/` may stand in the path as they are."""
    return json_response(shown(await get_runtime().providers.show_model(model_name)))
