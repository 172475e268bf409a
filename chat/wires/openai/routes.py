"""``/v1/chat/completions``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest

from ..common.answers import DROPPED, WholeAnswer, WireStreamResponse, dropped_of, headers_of
from ..common.api import WireAPI, format_of, options_of, session_of
from ..common.schemas import THINK, ServerTools
from .encoder import ChunkEncoder, completion_of
from .errors import error_shape
from .history import read_history
from .schemas import ChatCompletionRequest, ChosenTool, ClientTool

api = WireAPI("openai", {"/v1/": error_shape})


@api.post("/chat/completions")
async def create_chat_completion(
    request: HttpRequest, payload: ChatCompletionRequest
) -> HttpResponseBase:
    """Answer a conversation, in one piece or as a stream."""
    runtime = get_runtime()
    session_id = session_of(request, payload.metadata)
    asked = await _read(payload, session_id)
    started = await runtime.completions.start(asked)
    session_id = started.kept_session_id
    if payload.stream:
        encoder = ChunkEncoder(
            started,
            model=payload.model,
            session_id=session_id,
            include_usage=payload.stream_options is not None
            and payload.stream_options.include_usage,
        )
        return WireStreamResponse(started, encoder, request.path_info, session_id)
    answer = await WholeAnswer.of(started)
    return JsonResponse(
        completion_of(started, answer, model=payload.model, session_id=session_id),
        headers={
            **headers_of(started, session_id),
            DROPPED: str(dropped_of(answer.complete)),
        },
    )


async def _read(payload: ChatCompletionRequest, session_id: str | None) -> CompletionRequest:
    runtime = get_runtime()
    messages, files = await read_history(payload.messages, runtime.attachment_reader)
    client_tools, tools = _tools(payload)
    return CompletionRequest(
        model=payload.model,
        messages=messages,
        attachments=files,
        options=options_of(payload.options),
        think=THINK[payload.reasoning_effort],
        response_format=format_of(payload.response_format, "response_format"),
        client_tools=client_tools,
        tools=tools,
        session_id=session_id,
        continues=session_id is not None and runtime.settings.on_disconnect == "continue",
    )


def _tools(payload: ChatCompletionRequest) -> tuple[list[Any], list[str] | None]:
    """Return the schemas of the client's functions, and the names of the server's tools."""
    if payload.tool_choice == "none":
        return [], []
    functions = [tool for tool in payload.tools or () if isinstance(tool, ClientTool)]
    servers = [tool for tool in payload.tools or () if isinstance(tool, ServerTools)]
    names = [name for tool in servers for name in tool.names] if servers else None
    if isinstance(payload.tool_choice, ChosenTool):  # the model can call no other one
        chosen = payload.tool_choice.function.name
        functions = [tool for tool in functions if tool.function.name == chosen]
        names = [name for name in names or () if name == chosen]
    return [tool.schema_for_model() for tool in functions], names
