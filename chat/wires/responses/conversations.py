"""``/v1/conversations``: sessions as OpenAI's conversations."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from ninja import Query
from pydantic import JsonValue

from mochi_project.runtime import get_runtime
from mochi_server.core.media import IMAGES
from mochi_server.errors import InvalidRequest, MochiError
from mochi_server.protocol.messages import Message
from mochi_server.sessions import ChatSession
from mochi_server.sessions.attachments import attachments_of

from ..common.api import WireAPI
from .history import read_items
from .items import Item, Placed, changes_without, conversation_items, find_item, seconds_of
from .schemas import ConversationChange, ConversationRequest, InputItem, NewItems, ignored_items

api = WireAPI("conversations")

CONVERSATION = "conv_"
"""What stands before the id of a session in the id of a conversation."""

IMAGE_URLS = "message.input_image.image_url"
"""What a client includes that wants to see images."""

METADATA = "conversation_metadata"
"""Key of a session's metadata with those that a client gave to a conversation."""


def session_of_conversation(conversation_id: str) -> str:
    return conversation_id.removeprefix(CONVERSATION)


def listed(items: Sequence[Item], *, has_more: bool = False, **more: Any) -> HttpResponseBase:  # noqa: ANN401 - JSON
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    answer = {"object": "list", "data": [*items], "first_id": first, "last_id": last}
    return JsonResponse({**answer, "has_more": has_more, **more})


Order = Literal["asc", "desc"]
Limit = Annotated[int, Query(ge=1, le=100)]


def page_of(items: list[Item], order: Order, limit: int, after: str | None) -> HttpResponseBase:
    """Return so many items of a list, those after one that the client has.

    Raises:
        InvalidRequest: there is no such one.
    """
    if order == "desc":
        items.reverse()
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest(f"There is no item {after!r}.")
        items = items[ids.index(after) + 1 :]
    return listed(items[:limit], has_more=len(items) > limit)


async def shown(
    request: HttpRequest,
    session_id: str,
    messages: Sequence[JsonValue],
    placed: Iterable[Placed],
) -> list[Item]:
    """Return items of messages, with the images that the client wants to see."""
    placed = [*placed]
    if IMAGE_URLS not in {*request.GET.getlist("include[]"), *request.GET.getlist("include")}:
        return [item for _, item in placed]
    store = get_runtime().attachments
    for index, item in placed:
        message = messages[index]
        images = [part for part in item.get("content") or () if part["type"] == "input_image"]
        entries = attachments_of(message) if isinstance(message, dict) else ()
        shown = (entry for entry in entries if entry.get("media_type") in IMAGES)
        for part, entry in zip(images, shown, strict=False):  # a result's item has no parts
            content = await store.read(session_id, str(entry["attachment_id"]))
            part["image_url"] = f"data:{entry['media_type']};base64,{b64encode(content).decode()}"
    return [item for _, item in placed]


@api.post("/conversations")
async def create_conversation(
    request: HttpRequest, payload: ConversationRequest | None = None
) -> HttpResponseBase:
    """Make a session, which has the default model until a response names another one."""
    runtime = get_runtime()
    payload = payload or ConversationRequest()
    messages, files = await read_items(payload.items, runtime.attachment_reader)
    session = await runtime.sessions.create(
        await default_model(),
        prepare=lambda session: _prepare(session, messages, payload.metadata),
    )
    await runtime.attachments.keep(session.session_id, files)
    return JsonResponse({**_conversation(session), **_ignored(payload.items)})


def _ignored(items: Sequence[InputItem]) -> dict[str, Any]:
    """Return the field ``mochi`` of an answer, which names items that are left out, if any are."""
    names = ignored_items(items)
    return {"mochi": {"ignored_items": names}} if names else {}


async def default_model() -> str:
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
        "created_at": seconds_of(session.metadata.created_at),
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
    order: Order = "desc",
    limit: Limit = 20,
    after: str | None = None,
) -> HttpResponseBase:
    """List the messages of a session as items."""
    session = await get_runtime().sessions.get(session_of_conversation(conversation_id))
    messages = session.stored_messages()
    placed = conversation_items(messages, session.session_id)
    items = await shown(request, session.session_id, messages, placed)
    return page_of(items, order, limit, after)


@api.get("/conversations/{conversation_id}/items/{item_id}")
async def read_conversation_item(
    request: HttpRequest, conversation_id: str, item_id: str
) -> HttpResponseBase:
    """Return an item of a session."""
    session = await get_runtime().sessions.get(session_of_conversation(conversation_id))
    messages = session.stored_messages()
    placed = find_item(messages, session.session_id, item_id)
    [item] = await shown(request, session.session_id, messages, [placed])
    return JsonResponse(item)


@api.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_conversation_item(
    request: HttpRequest, conversation_id: str, item_id: str
) -> HttpResponseBase:
    """Delete an item of a session; of a call and its result both."""
    session_id = session_of_conversation(conversation_id)
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        messages = session.stored_messages()
        session.replace_messages(changes_without(messages, session_id, item_id))
    return JsonResponse(_conversation(session))


@api.post("/conversations/{conversation_id}/items")
async def add_conversation_items(
    request: HttpRequest, conversation_id: str, payload: NewItems
) -> HttpResponseBase:
    """Add messages, calls and results to the end of a session."""
    runtime = get_runtime()
    session_id = session_of_conversation(conversation_id)
    messages, files = await read_items(payload.items, runtime.attachment_reader)
    await runtime.sessions.check_exists(session_id)
    await runtime.sessions.take_space_for(messages)
    await runtime.attachments.keep(session_id, files)
    async with runtime.sessions.edit(session_id, exclusive=True) as session:
        before = len(session.messages)
        session.append(*messages)
        stored = session.stored_messages()
    placed = [each for each in conversation_items(stored, session_id) if each[0] >= before]
    return listed(await shown(request, session_id, stored, placed), **_ignored(payload.items))
