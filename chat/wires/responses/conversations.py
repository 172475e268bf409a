"""``/v1/conversations``: sessions as OpenAI's conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from ninja import Query

from mochi_project.runtime import get_runtime
from mochi_server.errors import InvalidRequest, MochiError
from mochi_server.protocol.messages import Message
from mochi_server.services.history import objects
from mochi_server.sessions import ChatSession
from mochi_server.sessions.types import instant

from ..common.api import WireAPI
from .items import Item, conversation_items, read_items
from .schemas import ConversationChange, ConversationRequest, NewItems

api = WireAPI("conversations")

CONVERSATION = "conv_"
"""What stands before the id of a session in the id of a conversation."""

METADATA = "conversation_metadata"
"""Key of a session's metadata with those that a client gave to a conversation."""


def session_of_conversation(conversation_id: str) -> str:
    """Return the session of a conversation."""
    return conversation_id.removeprefix(CONVERSATION)


def listed(items: Sequence[Item], *, has_more: bool = False) -> HttpResponseBase:
    """Return a list of items."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    answer = {"object": "list", "data": [*items], "first_id": first, "last_id": last}
    return JsonResponse({**answer, "has_more": has_more})


@api.post("/conversations")
async def create_conversation(
    request: HttpRequest, payload: ConversationRequest | None = None
) -> HttpResponseBase:
    """Make a session, which has the default model until a response names another one."""
    runtime = get_runtime()
    payload = payload or ConversationRequest()
    messages, files = await read_items(payload.items, runtime.attachment_reader)
    session = await runtime.sessions.create(
        await _default_model(),
        prepare=lambda session: _prepare(session, messages, payload.metadata),
    )
    await runtime.attachments.keep(session.session_id, files)
    return JsonResponse(_conversation(session))


async def _default_model() -> str:
    """Return the first model; none where no provider answers, since a response names one anyway."""
    try:
        models = (await get_runtime().providers.list_models()).models
    except MochiError:
        return ""
    return models[0].name if models else ""


def _prepare(
    session: ChatSession, messages: Sequence[Message], metadata: dict[str, str] | None
) -> None:
    session.append(*messages)
    if metadata is not None and session.metadata.model_extra is not None:
        session.metadata.model_extra[METADATA] = metadata


def _conversation(session: ChatSession) -> dict[str, Any]:
    extra = session.metadata.model_extra or {}
    return {
        "id": f"{CONVERSATION}{session.session_id}",
        "object": "conversation",
        "created_at": int(instant(session.metadata.created_at).timestamp()),
        "metadata": extra.get(METADATA) or {},
    }


@api.get("/conversations/{conversation_id}")
async def read_conversation(request: HttpRequest, conversation_id: str) -> HttpResponseBase:
    """Return a session as a conversation."""
    session = await get_runtime().sessions.get(session_of_conversation(conversation_id))
    return JsonResponse(_conversation(session))


@api.post("/conversations/{conversation_id}")
async def change_conversation(
    request: HttpRequest, conversation_id: str, payload: ConversationChange
) -> HttpResponseBase:
    """Set what a client keeps with a conversation."""
    async with get_runtime().sessions.edit(session_of_conversation(conversation_id)) as session:
        _prepare(session, (), payload.metadata)
    return JsonResponse(_conversation(session))


@api.delete("/conversations/{conversation_id}")
async def delete_conversation(request: HttpRequest, conversation_id: str) -> HttpResponseBase:
    """Delete a session."""
    await get_runtime().sessions.delete(session_of_conversation(conversation_id))
    answer = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
    return JsonResponse(answer)


@api.get("/conversations/{conversation_id}/items")
async def list_conversation_items(
    request: HttpRequest,
    conversation_id: str,
    order: Literal["asc", "desc"] = "desc",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: str | None = None,
) -> HttpResponseBase:
    """List the messages of a session as items."""
    session = await get_runtime().sessions.get(session_of_conversation(conversation_id))
    items = conversation_items([*objects(session.stored_messages())])
    if order == "desc":
        items.reverse()
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest(f"There is no item {after!r}.")
        items = items[ids.index(after) + 1 :]
    return listed(items[:limit], has_more=len(items) > limit)


@api.post("/conversations/{conversation_id}/items")
async def add_conversation_items(
    request: HttpRequest, conversation_id: str, payload: NewItems
) -> HttpResponseBase:
    """Add messages, calls and results to the end of a session."""
    runtime = get_runtime()
    session_id = session_of_conversation(conversation_id)
    messages, files = await read_items(payload.items, runtime.attachment_reader)
    await runtime.sessions.check_exists(session_id)
    await runtime.attachments.keep(session_id, files)
    async with runtime.sessions.edit(session_id, exclusive=True) as session:
        session.append(*messages)
        added = [*objects(session.stored_messages())][-len(messages) :] if messages else []
    return listed(conversation_items(added))
