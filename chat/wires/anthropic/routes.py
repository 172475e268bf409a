"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.protocol.response_format import JsonSchemaFormat
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import Think

from ..common.answers import WireStreamResponse, whole_answer
from ..common.api import WireAPI, continues, options_of, session_of
from ..common.body import read_body
from ..common.schemas import THINK
from ..common.tools import offered
from . import threads
from .encoder import AnswerFrame, MessageEncoder, message_of
from .history import HistoryReader
from .schemas import MessagesRequest, TokenCountRequest

api = WireAPI("anthropic")

BUDGETS: tuple[tuple[int, Think], ...] = ((2048, "low"), (8192, "medium"), (16_384, "high"))
"""How much a model thinks, by the largest ``budget_tokens``; above them all it is ``max``."""


@api.post("/messages")
async def create_message(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, in one piece or as a stream."""
    payload = await read_body(request, MessagesRequest)
    session_id = session_of(request, payload.metadata)
    payload = await threads.completed(payload, session_id)
    reader = HistoryReader(get_runtime().attachment_reader)
    asked = await _read(payload, reader, options_of(payload.options), session_id)
    is_kept = session_id is not None or payload.thread is not None
    asked = replace(asked, turn=replace(asked.turn, continues=continues(is_kept=is_kept)))
    started, message_id = await threads.start(asked, payload)
    frame = AnswerFrame(
        message_id=message_id or f"msg_{started.run_id.removeprefix('run_')}",
        model=payload.model,
        shows_thinking=payload.thinking is None or payload.thinking.display != "omitted",
        ignored_blocks=sorted(reader.ignored),
    )
    if payload.stream:
        encoder = MessageEncoder(started, frame)
        return WireStreamResponse(started, encoder, request.path_info)
    form = partial(message_of, started, frame=frame)
    return await whole_answer(started, form)


@api.post("/messages/count_tokens")
async def count_tokens(request: HttpRequest) -> HttpResponseBase:
    """Estimate the tokens of a conversation."""
    payload, runtime = await read_body(request, TokenCountRequest), get_runtime()
    asked = await _read(payload, HistoryReader(runtime.attachment_reader))
    return JsonResponse({"input_tokens": await runtime.completions.count_tokens(asked)})


async def _read(
    payload: TokenCountRequest,
    reader: HistoryReader,
    options: ModelOptions = NO_OPTIONS,
    session_id: str | None = None,
) -> CompletionRequest:
    await reader.read(payload.system, payload.messages)
    choice = payload.tool_choice
    client_tools, tools = offered(payload.tools)
    return CompletionRequest(
        messages=reader.messages,
        turn=TurnRequest(
            model=payload.model,
            attachments=reader.files,
            options=options,
            think=_think(payload),
            response_format=_format(payload),
            client_tools=client_tools,
            must_call=choice is not None and choice.type in ("any", "tool"),
            selected=tools,
            allowed=None if choice is None else choice.allowed,
        ),
        think_if_able=payload.thinking is not None and payload.thinking.type != "enabled",
        session_id=session_id,
    )


def _think(payload: TokenCountRequest) -> Think | None:
    thinking = payload.thinking
    if thinking is None:
        return None
    if thinking.type == "disabled":
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
