"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.protocol.response_format import JsonSchemaFormat
from mochi_server.providers.base import Think

from ..common.answers import DROPPED, WholeAnswer, WireStreamResponse, dropped_of, headers_of
from ..common.api import WireAPI, options_of, session_of
from ..common.body import read_body
from ..common.schemas import THINK
from ..common.tools import offered
from .encoder import MessageEncoder, message_of
from .history import HistoryReader
from .schemas import MessagesRequest, TokenCountRequest

api = WireAPI("anthropic")

BUDGETS: tuple[tuple[int, Think], ...] = ((2048, "low"), (8192, "medium"), (16_384, "high"))
"""How much a model thinks, by the largest ``budget_tokens``; above them all it is ``max``."""


@api.post("/messages")
async def create_message(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, in one piece or as a stream."""
    payload = await read_body(request, MessagesRequest)
    runtime = get_runtime()
    session_id = session_of(request, payload.metadata)
    asked = await _read(payload, options_of(payload.options), session_id)
    started = await runtime.completions.start(asked)
    session_id = started.kept_session_id
    shows_thinking = payload.thinking is None or payload.thinking.display != "omitted"
    if payload.stream:
        encoder = MessageEncoder(
            started, model=payload.model, session_id=session_id, shows_thinking=shows_thinking
        )
        return WireStreamResponse(started, encoder, request.path_info, session_id)
    answer = await WholeAnswer.of(started)
    return JsonResponse(
        message_of(
            started,
            answer,
            model=payload.model,
            session_id=session_id,
            shows_thinking=shows_thinking,
        ),
        headers={**headers_of(started, session_id), DROPPED: str(dropped_of(answer.complete))},
    )


@api.post("/messages/count_tokens")
async def count_tokens(request: HttpRequest) -> HttpResponseBase:
    """Estimate the tokens of a conversation."""
    payload = await read_body(request, TokenCountRequest)
    tokens = await get_runtime().completions.count_tokens(await _read(payload))
    return JsonResponse({"input_tokens": tokens})


async def _read(
    payload: TokenCountRequest, options: ModelOptions = NO_OPTIONS, session_id: str | None = None
) -> CompletionRequest:
    runtime = get_runtime()
    reader = HistoryReader(runtime.attachment_reader)
    await reader.read(payload.system, payload.messages)
    choice = payload.tool_choice
    client_tools, tools = offered(
        payload.tools,
        none=choice is not None and choice.type == "none",
        only=[choice.name or ""] if choice is not None and choice.type == "tool" else None,
    )
    return CompletionRequest(
        model=payload.model,
        messages=reader.messages,
        attachments=reader.files,
        options=options,
        think=_think(payload),
        think_if_able=payload.thinking is not None and payload.thinking.type != "enabled",
        response_format=_format(payload),
        client_tools=client_tools,
        must_call=choice is not None and choice.type in ("any", "tool"),
        tools=tools,
        session_id=session_id,
        continues=session_id is not None and runtime.settings.on_disconnect == "continue",
    )


def _think(payload: TokenCountRequest) -> Think:
    thinking = payload.thinking
    if thinking is None or thinking.type == "disabled":
        return False
    if thinking.budget_tokens is not None:
        levels = (think for most, think in BUDGETS if thinking.budget_tokens <= most)
        return next(levels, "max")
    effort = payload.output_config.effort if payload.output_config is not None else None
    return THINK[effort] or True


def _format(payload: TokenCountRequest) -> JsonSchemaFormat | None:
    config = payload.output_config
    wanted = payload.output_format if config is None or config.format is None else config.format
    return None if wanted is None else JsonSchemaFormat.of(wanted.content)
