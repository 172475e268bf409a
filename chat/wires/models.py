"""``/v1/models``: what requests of OpenAI's and Anthropic's APIs may name as their model."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.http.wires import ANTHROPIC_HEADERS
from mochi_project.runtime import get_runtime
from mochi_server.providers.base import ModelInfo

from .common.api import WireAPI
from .common.models import UNKNOWN_TIME, time_of

api = WireAPI("models")


@api.get("/models")
async def list_models(request: HttpRequest) -> HttpResponseBase:
    """List the models, all on one page."""
    listed = (await get_runtime().models.list_models()).models
    if not _is_anthropics(request):
        return JsonResponse({"object": "list", "data": [_openai(each) for each in listed]})
    data = [_anthropic(each) for each in listed]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return JsonResponse(
        {"data": data, "has_more": False, "first_id": None, "last_id": None, **ends}
    )


@api.get("/models/{path:name}")
async def read_model(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return one model."""
    model = await get_runtime().models.show_model(name)
    return JsonResponse(_anthropic(model) if _is_anthropics(request) else _openai(model))


def _is_anthropics(request: HttpRequest) -> bool:
    return any(header in request.headers for header in ANTHROPIC_HEADERS)


def _openai(model: ModelInfo) -> dict[str, Any]:
    created = int((model.modified_at or UNKNOWN_TIME).timestamp())
    return {"id": model.name, "object": "model", "created": created, "owned_by": model.provider}


def _anthropic(model: ModelInfo) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": time_of(model),
        "lifecycle": "active",
        "max_input_tokens": model.context_length,
        "max_tokens": None,
        "capabilities": None,
    }
