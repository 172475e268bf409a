"""``/sessions/{session_id}/variants``: answers to a message of the user, one of them shown."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Path, Router
from pydantic import Field

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId, Timestamp
from mochi_server.errors import (
    MessageNotFound,
    SessionBusy,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
)

from .answers import SessionDetail
from .api import detail_of

router = Router()

EXAMPLE_ID = "f1e2d3c4b5"

MessageId = Annotated[str, Path(description="Of the answer.", examples=[EXAMPLE_ID])]


class VariantShown(ResponseModel):
    """One of the answers to a message."""

    message_id: str | None = Field(
        description="Null only of a shown answer without an id, in a file of an old writer.",
        examples=[EXAMPLE_ID],
    )
    content: str = Field(examples=["The capital of France is Paris."])
    model: str | None = Field(examples=["qwen3:14b"])
    created_at: Timestamp | None
    shown: bool = Field(description="Whether it is among the messages of the session.")
    question: str | None = Field(
        description="What the user's message said then, if it was edited since: it comes back with "
        "the answer.",
        examples=[None],
    )


class MessageVariants(ResponseModel):
    """The answers to one message of the user."""

    message_id: str = Field(description="Of the user's message.", examples=["0a1b2c3d4e"])
    variants: list[VariantShown] = Field(description="The oldest first; at most one is shown.")


class SessionVariants(ResponseModel):
    """The messages of a session that have several answers."""

    session_id: SessionId
    messages: list[MessageVariants]


@router.get(
    "/{session_id}/variants",
    response=SessionVariants,
    summary="List the messages that have several answers",
    openapi_extra=documented(SessionNotFound, SessionUnreadable, StorageError),
)
async def list_variants(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
) -> SessionVariants:
    """In the order of the messages; only those that are among the messages of the session."""
    session = await get_runtime().sessions.get(session_id)
    found = [
        MessageVariants.model_validate({"message_id": message_id, "variants": variants})
        for message_id, variants in session.variants()
    ]
    return SessionVariants(session_id=session_id, messages=found)


@router.post(
    "/{session_id}/variants/{message_id}/select",
    response=SessionDetail,
    summary="Show another answer",
    openapi_extra=documented(
        MessageNotFound, SessionNotFound, SessionBusy, SessionUnreadable, StorageError
    ),
)
async def select_variant(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
    message_id: MessageId,
) -> SessionDetail:
    """With all that followed it. What is shown now is kept, with all that follows it."""
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        session.select_variant(message_id)
    return detail_of(session)
