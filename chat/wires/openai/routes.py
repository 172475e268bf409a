"""``/v1/chat/completions``, ``/v1/completions`` and ``/v1/embeddings``."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.protocol.messages import UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import EmbeddingRequest

from ..common.answers import WireStreamResponse, whole_answer
from ..common.api import WireAPI, continues, format_of, options_of, session_of
from ..common.body import read_body
from ..common.schemas import THINK
from ..common.tools import calls_of_choice, offered
from .encoder import ChunkEncoder, TextChunkEncoder, completion_of, text_completion_of
from .history import read_history
from .schemas import (
    AnswerRequest,
    ChatCompletionRequest,
    CreateEmbeddingsRequest,
    TextCompletionRequest,
)

api = WireAPI("openai")


@api.post("/chat/completions")
async def create_chat_completion(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, in one piece or as a stream."""
    payload = await read_body(request, ChatCompletionRequest)
    asked = await _read(payload)
    return await _answer(request, payload, asked, ChunkEncoder, completion_of)


@api.post("/completions")
async def create_completion(request: HttpRequest) -> HttpResponseBase:
    """Answer a text, which is a conversation of its own; in one piece or as a stream."""
    payload = await read_body(request, TextCompletionRequest)
    asked = CompletionRequest(
        messages=[UserMessage(content=payload.text)],
        turn=TurnRequest(
            model=payload.model,
            options=options_of(payload.options),
            think=False,
        ),
    )
    return await _answer(request, payload, asked, TextChunkEncoder, text_completion_of)


async def _answer(
    request: HttpRequest,
    payload: AnswerRequest,
    asked: CompletionRequest,
    encoder_class: type[ChunkEncoder],
    whole: Callable[..., dict[str, Any]],
) -> HttpResponseBase:
    session_id = session_of(request, payload.metadata)
    asked = replace(
        asked,
        session_id=session_id,
        turn=replace(asked.turn, continues=continues(is_kept=session_id is not None)),
    )
    started = await get_runtime().completions.start(asked)
    if payload.stream:
        encoder = encoder_class(
            started,
            model=payload.model,
            include_usage=payload.stream_options is not None
            and payload.stream_options.include_usage,
        )
        return WireStreamResponse(started, encoder, request.path_info)
    form = partial(whole, started, model=payload.model)
    return await whole_answer(started, form)


@api.post("/embeddings")
async def create_embeddings(
    request: HttpRequest, payload: CreateEmbeddingsRequest
) -> dict[str, Any]:
    """Return a vector for each text."""
    asked = EmbeddingRequest(
        model=payload.model, texts=payload.texts, dimensions=payload.dimensions
    )
    made = await get_runtime().models.embed(asked)
    encode = _base64 if payload.encoding_format == "base64" else list
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(vector)}
            for index, vector in enumerate(made.vectors)
        ],
        "model": payload.model,
        "usage": {"prompt_tokens": made.prompt_tokens, "total_tokens": made.prompt_tokens},
    }


def _base64(vector: Sequence[float]) -> str:
    """Return the numbers with 32 bits each, the lowest byte first."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


async def _read(payload: ChatCompletionRequest) -> CompletionRequest:
    messages, files = await read_history(payload.messages, get_runtime().attachment_reader)
    client_tools, tools = offered(payload.tools)
    allowed, must_call = calls_of_choice(payload.tool_choice)
    return CompletionRequest(
        messages=messages,
        turn=TurnRequest(
            model=payload.model,
            attachments=files,
            options=options_of(payload.options),
            think=THINK[payload.reasoning_effort],
            response_format=format_of(payload.response_format, "response_format"),
            client_tools=client_tools,
            must_call=must_call,
            selected=tools,
            allowed=allowed,
            thinks_unasked=True,
        ),
    )
