"""``/system-prompts``: the prompt files of the data folder, and the prompts of MCP servers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import Json

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import PromptArguments
from mochi_server.core.audit import add_details
from mochi_server.core.shown_text import shown_text
from mochi_server.errors import (
    InvalidRequest,
    McpServerFailed,
    PromptArgumentsInvalid,
    PromptExists,
    PromptInvalid,
    PromptNotFound,
    StorageError,
)
from mochi_server.tools.mcp.prompts import McpPrompt, is_mcp_prompt

from .schemas import (
    FileName,
    McpPromptDetail,
    McpPromptList,
    Prompt,
    PromptCreate,
    PromptList,
    PromptUpdate,
)

router = Router()


def _described(prompt: McpPrompt) -> dict[str, Any]:
    """Return a prompt as ``McpPromptLine`` has it."""
    described = prompt.described
    return {
        "name": prompt.name,
        "server": prompt.server_name,
        "title": None if described.title is None else shown_text(described.title),
        "description": shown_text(described.description),
        "arguments": [
            {
                "name": each.name,
                "description": shown_text(each.description),
                "required": each.required,
            }
            for each in described.arguments
        ],
    }


@router.get(
    "",
    response=PromptList | McpPromptList,
    summary="List the prompt files, or the prompts of MCP servers",
    openapi_extra=documented(InvalidRequest, StorageError),
)
async def list_prompts(
    request: HttpRequest,
    source: Annotated[
        Literal["files", "mcp"], Query(description="`mcp`: the prompts of MCP servers.")
    ] = "files",
) -> PromptList | McpPromptList:
    """Every `.md` and `.txt` file of the folder, by name.

    With `source=mcp`, the prompts of all servers, as far as they are known: nothing waits for one.
    """
    runtime = get_runtime()
    if source == "files":
        return PromptList.model_validate(await runtime.prompts.list(), from_attributes=True)
    prompts = [_described(each) for each in await runtime.mcp_prompts.list()]
    return McpPromptList.model_validate({"prompts": prompts})


@router.get(
    "/{filename}",
    response=Prompt | McpPromptDetail,
    summary="Read a prompt file, or a prompt of an MCP server",
    openapi_extra=documented(
        *(PromptNotFound, PromptInvalid, PromptArgumentsInvalid, InvalidRequest),
        *(McpServerFailed, StorageError),
    ),
)
async def read_prompt(
    request: HttpRequest,
    filename: FileName,
    arguments: Annotated[
        Json[PromptArguments] | None,
        Query(description="Of a prompt of a server: a JSON object of texts."),
    ] = None,
) -> Prompt | McpPromptDetail:
    """The whole text. The prompt of a server, `{server}__{prompt}`, is filled in by the server."""
    runtime = get_runtime()
    if not is_mcp_prompt(filename):
        return Prompt(filename=filename, content=await runtime.prompts.read(filename))
    prompt = await runtime.mcp_prompts.get(filename)
    content = await runtime.mcp_prompts.text(prompt, arguments or {})
    return McpPromptDetail(**_described(prompt), content=content, shown_content=shown_text(content))


@router.post(
    "",
    response={201: Prompt},
    summary="Create a prompt file",
    openapi_extra=documented(PromptExists, StorageError),
)
async def create_prompt(request: HttpRequest, payload: PromptCreate) -> PromptCreate:
    """Never replaces a file."""
    add_details(filename=payload.filename)
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
