"""``/v1/models``: what requests of OpenAI's and Anthropic's APIs may name as their model."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.http.errors import error_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import MochiError
from mochi_server.providers.base import ModelInfo

from .anthropic.routes import MESSAGES
from .common.api import WireAPI

api = WireAPI("models", {})

ANTHROPIC_VERSION = "anthropic-version"
"""The header by which Anthropic's clients are known."""


@api.get("/models")
async def list_models(request: HttpRequest) -> HttpResponseBase:
    """List the models, all on one page."""
    listed = (await get_runtime().models.list_models()).models
    if ANTHROPIC_VERSION not in request.headers:
        return JsonResponse({"object": "list", "data": [_openai(each) for each in listed]})
    data = [_anthropic(each) for each in listed]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return JsonResponse(
        {"data": data, "has_more": False, "first_id": None, "last_id": None, **ends}
    )


@api.get("/models/{path:name}")
async def read_model(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return one model."""
    is_anthropic = ANTHROPIC_VERSION in request.headers
    try:
        model = await get_runtime().models.show_model(name)
    except MochiError as error:
        return error_response(error, MESSAGES if is_anthropic else request.path_info)
    return JsonResponse(_anthropic(model) if is_anthropic else _openai(model))


def _openai(model: ModelInfo) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": 0, "owned_by": model.provider}


def _anthropic(model: ModelInfo) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": model.context_length,
        "max_tokens": None,
        "capabilities": None,
    }
