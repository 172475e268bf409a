"""``/models``: what there is to talk to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat.schemas import MODEL, PROBLEM, Model, ModelList
from mochi_project.openapi import documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import (
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    ProviderNotConfigured,
)
from mochi_server.providers.base import ModelInfo

router = Router()


def shown(model: ModelInfo) -> dict[str, Any]:
    """A model as the API shows it."""
    data = asdict(model)
    if model.size_mb is not None:
        data["size_mb"] = round(model.size_mb, 1)
    return data


@router.get(
    "",
    response=ModelList,
    summary="List the models",
    openapi_extra=documented(
        OllamaUnreachable, OllamaError, example={"models": [MODEL], "problems": [PROBLEM]}
    ),
)
async def list_models(request: HttpRequest) -> HttpResponse:
    """Models that can chat. A provider that does not answer is named under `problems`."""
    found = await get_runtime().providers.list_models()
    return json_response(
        {"models": [shown(model) for model in found.models], "problems": found.problems}
    )


@router.get(
    "/{path:model_name}",
    response=Model,
    summary="Read one model",
    openapi_extra=documented(
        ModelNotFound,
        ProviderNotConfigured,
        OllamaUnreachable,
        OllamaError,
        example=MODEL,
        parameters={"model_name": "qwen3:14b"},
    ),
)
async def read_model(request: HttpRequest, model_name: str) -> HttpResponse:
    """The name as in the list; `:` and `/` may stand in the path as they are."""
    return json_response(shown(await get_runtime().providers.show_model(model_name)))
