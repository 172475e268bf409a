"""``/ollama/api/chat`` and the others of Ollama's API that have a sense here."""

from __future__ import annotations

import hashlib
import re
import time
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import NEW_SESSION, CompletionRequest
from mochi_server.errors import ModelNotFound
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import EmbeddingRequest, LoadedModel, ModelInfo

from ..common.answers import WireStreamResponse, whole_answer
from ..common.api import WireAPI, continues, format_of, options_of, session_of
from ..common.body import read_body
from ..common.models import time_of
from ..common.tools import offered
from .encoder import AnswerEncoder, Kind, loaded_object
from .errors import error_object
from .history import read_history
from .schemas import (
    EmbedPromptRequest,
    EmbedRequest,
    GenerateRequest,
    ModelQuestion,
    OllamaChatRequest,
    OllamaMessage,
    PullRequest,
    ShowRequest,
)

VERSION = "0.33.0"
"""Of the Ollama whose API this is."""

api = WireAPI("ollama")


@api.post("/chat")
async def chat(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, as a stream unless the client wants it in one piece."""
    payload = await read_body(request, OllamaChatRequest)
    functions, names = offered(payload.tools)
    return await _answer(
        request, payload, "chat", payload.messages, client_tools=functions, selected=names
    )


@api.post("/generate")
async def generate(request: HttpRequest) -> HttpResponseBase:
    """Answer a prompt, which is a conversation of its own."""
    payload = await read_body(request, GenerateRequest)
    messages: list[OllamaMessage] = []
    if payload.prompt and payload.system is not None:
        messages.append(OllamaMessage(role="system", content=payload.system))
    if payload.prompt:
        prompt = {"role": "user", "content": payload.prompt, "images": payload.images}
        messages.append(OllamaMessage.model_validate(prompt))
    return await _answer(request, payload, "generate", messages)


async def _answer(
    request: HttpRequest,
    payload: ModelQuestion,
    kind: Kind,
    messages: list[OllamaMessage],
    **tools: Any,  # noqa: ANN401 - of TurnRequest
) -> HttpResponseBase:
    runtime = get_runtime()
    options = options_of(payload.model_options)
    if not messages:
        return await _load(payload.model, kind, options.keep_alive)
    session_id = session_of(request, None)
    history, files = await read_history(
        messages, runtime.attachment_reader, is_whole=session_id in (None, NEW_SESSION)
    )
    asked = CompletionRequest(
        messages=history,
        turn=TurnRequest(
            model=payload.model,
            attachments=files,
            options=options,
            think=payload.think,
            response_format=format_of(payload.response_format, "format"),
            continues=continues(is_kept=session_id is not None),
            **tools,
            thinks_unasked=True,
        ),
        session_id=session_id,
    )
    started = await runtime.completions.start(asked)
    encoder = AnswerEncoder(started, kind, model=payload.model, ignored=payload.ignored_options)
    if payload.stream:
        return WireStreamResponse(started, encoder, request.path_info)
    return await whole_answer(started, encoder.whole)


async def _load(name: str, kind: Kind, keep_alive: str | float | None) -> HttpResponseBase:
    """Load the model of a request that asks it nothing, or unload it."""
    completions = get_runtime().completions
    unloads = keep_alive is not None and not re.search("[1-9]", str(keep_alive))
    if unloads:
        await completions.unload(name)
    else:
        await completions.load(name, keep_alive)
    return JsonResponse(loaded_object(name, kind, "unload" if unloads else "load"))


@api.post("/embed")
async def embed(request: HttpRequest, payload: EmbedRequest) -> dict[str, Any]:
    """Return a vector for each text."""
    began = time.monotonic()
    made = await get_runtime().models.embed(
        EmbeddingRequest(
            model=payload.model,
            texts=payload.texts,
            dimensions=payload.dimensions or None,
            truncate=payload.truncate,
            keep_alive=options_of({"keep_alive": payload.keep_alive}).keep_alive,
        )
    )
    return {
        "model": payload.model,
        "embeddings": made.vectors,
        "total_duration": int((time.monotonic() - began) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": made.prompt_tokens,
        "mochi": {"ignored_options": [*(payload.options or ())]},
    }


@api.post("/embeddings")
async def embed_prompt(request: HttpRequest, payload: EmbedPromptRequest) -> dict[str, Any]:
    """Return the vector of one text."""
    asked = EmbeddingRequest(
        model=payload.model,
        texts=[payload.prompt] if payload.prompt else [],
        keep_alive=options_of({"keep_alive": payload.keep_alive}).keep_alive,
    )
    made = await get_runtime().models.embed(asked)
    return {"embedding": made.vectors[0] if made.vectors else []}


@api.get("/tags")
async def list_models(request: HttpRequest) -> HttpResponseBase:
    """List what a request may name as its model."""
    listed = (await get_runtime().models.list_models()).models
    return JsonResponse({"models": [_listed(model) for model in listed]})


@api.post("/show")
async def show_model(request: HttpRequest, payload: ShowRequest) -> HttpResponseBase:
    """Return what is known of a model."""
    model = await get_runtime().models.show_model(payload.named)
    family = model.family or "unknown"
    info: dict[str, Any] = {"general.architecture": family}
    if model.context_length is not None:
        info[f"{family}.context_length"] = model.context_length
    return JsonResponse(
        {
            "modelfile": "",
            "parameters": "",
            "template": "",
            "details": _details(model),
            "model_info": info,
            "capabilities": model.capabilities or ["completion"],
            "modified_at": time_of(model),
        }
    )


@api.get("/ps")
async def list_running(request: HttpRequest) -> HttpResponseBase:
    """List the models that are loaded, of the providers that say so."""
    return JsonResponse({"models": [*map(_running, await get_runtime().providers.loaded_models())]})


@api.post("/pull")
async def pull_model(request: HttpRequest, payload: PullRequest) -> HttpResponseBase:
    """Say that a model is there; one that is not is not fetched."""
    try:
        await get_runtime().models.show_model(payload.named)
    except ModelNotFound as error:
        return _not_changed(f"{error.message} ")
    kind = AnswerEncoder.content_type if payload.stream else "application/json"
    return HttpResponse(b'{"status":"success"}\n', content_type=kind)


async def change_models(request: HttpRequest) -> HttpResponseBase:
    """Refuse to change models: they are those of the providers."""
    return _not_changed()


def _not_changed(reason: str = "") -> HttpResponseBase:
    text = "This server does not change models: use the program that runs them, such as ollama."
    return JsonResponse(error_object(f"{reason}{text}"), status=HTTPStatus.NOT_IMPLEMENTED)


for _name in ("push", "create", "copy", "delete"):
    api.api_operation(["POST", "DELETE"], f"/{_name}")(change_models)


@api.post("/blobs/{digest}")
async def change_blobs(request: HttpRequest, digest: str) -> HttpResponseBase:
    """Refuse files of models as well."""
    return await change_models(request)


@api.get("/version")
async def read_version(request: HttpRequest) -> HttpResponseBase:
    """Return the version of the Ollama whose API this is."""
    return JsonResponse({"version": VERSION})


def _listed(model: ModelInfo) -> dict[str, Any]:
    length = model.context_length
    return {
        **_named(model),
        "modified_at": time_of(model),
        "size": int((model.size_mb or 0) * 1e6),
        "details": {**_details(model), **({"context_length": length} if length else {})},
        "capabilities": model.capabilities or ["completion"],
    }


def _running(loaded: LoadedModel) -> dict[str, Any]:
    expires = {} if loaded.expires_at is None else {"expires_at": loaded.expires_at}
    return {
        **_named(loaded.model),
        "size": loaded.size,
        "details": _details(loaded.model),
        **expires,
        "size_vram": loaded.vram,
        "context_length": loaded.window or 0,
    }


def _named(model: ModelInfo) -> dict[str, Any]:
    digest = hashlib.sha256(model.name.encode()).hexdigest()
    return {"name": model.name, "model": model.name, "digest": digest}


def _details(model: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": model.parent_model or "",
        "format": model.format or "",
        "family": model.family or "",
        "families": [model.family] if model.family else [],
        "parameter_size": model.parameter_size or "",
        "quantization_level": model.quantization_level or "",
    }
