"""``/tags``: the tags of sessions."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import EncodedAs, ResponseModel
from mochi_server.errors import InvalidRequest, StorageError
from mochi_server.sessions.catalogue.listing import SessionFilter

from .schemas import ARCHIVED, Archived

router = Router()


class TagShown(ResponseModel):
    """A tag."""

    tag: str = Field(examples=["python"])
    session_count: int = Field(description="How many sessions have it.", examples=[12])


class TagList(ResponseModel):
    """The tags of sessions, the most frequent one first."""

    tags: list[TagShown]


@router.get(
    "",
    response=Annotated[bytes, EncodedAs(TagList)],
    summary="List the tags of the sessions",
    openapi_extra=documented(InvalidRequest, StorageError),
)
async def list_tags(request: HttpRequest, *, archived: Archived = "all") -> bytes:
    """The most frequent one first. `archived` selects sessions as in `GET /sessions`."""
    return await get_runtime().sessions.tags_json(SessionFilter(archived=ARCHIVED[archived]))
