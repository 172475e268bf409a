"""``/system-prompts``: the prompt files of the data folder."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_server.errors import PromptExists, PromptNotFound, StorageError

from .schemas import FileName, Prompt, PromptCreate, PromptList, PromptUpdate

router = Router()


@router.get(
    "",
    response=PromptList,
    summary="List the prompt files",
    openapi_extra=documented(StorageError),
)
async def list_prompts(request: HttpRequest) -> dict[str, Any]:
    """Every `.md` and `.txt` file of the folder, by name."""
    return {"prompts": await get_runtime().prompts.list()}


@router.get(
    "/{filename}",
    response=Prompt,
    summary="Read a prompt file",
    openapi_extra=documented(PromptNotFound, StorageError),
)
async def read_prompt(request: HttpRequest, filename: FileName) -> Prompt:
    """The whole text."""
    return Prompt(filename=filename, content=await get_runtime().prompts.read(filename))


@router.post(
    "",
    response={201: Prompt},
    summary="Create a prompt file",
    openapi_extra=documented(PromptExists, StorageError),
)
async def create_prompt(request: HttpRequest, payload: PromptCreate) -> PromptCreate:
    """Never replaces a file."""
    await get_runtime().prompts.create(payload.filename, payload.content)
    return payload


@router.put(
    "/{filename}",
    response=Prompt,
    summary="Replace the text of a prompt file",
    openapi_extra=documented(PromptNotFound, StorageError),
)
async def update_prompt(request: HttpRequest, filename: FileName, payload: PromptUpdate) -> Prompt:
    """Sessions keep the text that they were given; this changes the file alone."""
    await get_runtime().prompts.update(filename, payload.content)
    return Prompt(filename=filename, content=payload.content)


@router.delete(
    "/{filename}",
    response={204: None},
    summary="Delete a prompt file",
    openapi_extra=documented(PromptNotFound, StorageError),
)
async def delete_prompt(request: HttpRequest, filename: FileName) -> None:
    """Sessions keep the text that they were given."""
    await get_runtime().prompts.delete(filename)
