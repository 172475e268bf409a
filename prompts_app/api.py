"""``/system-prompts``: the prompt files of the data folder."""

from __future__ import annotations

from dataclasses import asdict

from django.http import HttpRequest, HttpResponse
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.responses import json_response, no_content
from mochi_project.runtime import get_runtime
from mochi_server.errors import PromptExists, PromptNotFound, StorageError

from .schemas import CONTENT, PROMPT, SUMMARY, Prompt, PromptCreate, PromptList, PromptUpdate

router = Router()

NAMED = {"filename": "helpful.md"}


@router.get(
    "",
    response=PromptList,
    summary="List the prompt files",
    openapi_extra=documented(StorageError, example={"prompts": [SUMMARY]}),
)
async def list_prompts(request: HttpRequest) -> HttpResponse:
    """Every `.md` and `.txt` file of the folder, by name."""
    found = await get_runtime().prompts.list()
    return json_response({"prompts": [asdict(prompt) for prompt in found]})


@router.get(
    "/{filename}",
    response=Prompt,
    summary="Read a prompt file",
    openapi_extra=documented(PromptNotFound, StorageError, example=PROMPT, parameters=NAMED),
)
async def read_prompt(request: HttpRequest, filename: str) -> HttpResponse:
    """The whole text."""
    content = await get_runtime().prompts.read(filename)
    return json_response({"filename": filename, "content": content})


@router.post(
    "",
    response={201: Prompt},
    summary="Create a prompt file",
    openapi_extra=documented(PromptExists, StorageError, status=201, example=PROMPT, body=PROMPT),
)
async def create_prompt(request: HttpRequest, payload: PromptCreate) -> HttpResponse:
    """Never replaces a file."""
    await get_runtime().prompts.create(payload.filename, payload.content)
    return json_response(payload.model_dump(), status=201)


@router.put(
    "/{filename}",
    response=Prompt,
    summary="Replace the text of a prompt file",
    openapi_extra=documented(
        PromptNotFound,
        StorageError,
        example={**NAMED, **CONTENT},
        body=CONTENT,
        parameters=NAMED,
    ),
)
async def update_prompt(request: HttpRequest, filename: str, payload: PromptUpdate) -> HttpResponse:
    """Sessions keep the text that they were given; this changes the file alone."""
    await get_runtime().prompts.update(filename, payload.content)
    return json_response({"filename": filename, "content": payload.content})


@router.delete(
    "/{filename}",
    response={204: None},
    summary="Delete a prompt file",
    openapi_extra=documented(PromptNotFound, StorageError, parameters=NAMED),
)
async def delete_prompt(request: HttpRequest, filename: str) -> HttpResponse:
    """Sessions keep the text that they were given."""
    await get_runtime().prompts.delete(filename)
    return no_content()
