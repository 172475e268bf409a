"""Starts the runs of libraries for user interfaces, which all ask for the same things."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.chat.control import StartedRun
from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.attachments import NewAttachment
from mochi_server.protocol.messages import Message
from mochi_server.protocol.turn_request import TurnRequest

from .api import continues
from .schemas import InterfaceOptions


async def start_run(
    options: InterfaceOptions,
    history: tuple[list[Message], list[NewAttachment]],
    session_id: str | None,
    *,
    client_tools: Sequence[JSONObject],
    tools: Sequence[str] | None,
) -> StartedRun:
    """Start the run that answers a conversation.

    ``tools`` are names of tools of the server; None: those of the session.

    Raises:
        InvalidRequest: no model is named.
    """
    if options.model is None:
        raise InvalidRequest("The body must name a model; that of AG-UI in forwardedProps.")
    messages, files = history
    return await get_runtime().completions.start(
        CompletionRequest(
            messages=messages,
            turn=TurnRequest(
                model=options.model,
                attachments=files,
                options=options.options,
                think=options.think,
                response_format=options.response_format,
                client_tools=client_tools,
                selected=tools,
                continues=continues(is_kept=session_id is not None),
                thinks_unasked=True,
            ),
            tells_all_calls=True,
            session_id=session_id,
        )
    )
