"""System prompts as MCP prompts."""

from __future__ import annotations

from pathlib import PurePath

import mcp_types as types

from ..errors import PromptNotFound
from ..runtime import Runtime


async def list_prompts(runtime: Runtime) -> list[types.Prompt]:
    """Return the prompts, each under the name that ``file_of`` knows.

    Raises:
        StorageError: the folder cannot be listed.
    """
    previews = {
        prompt.filename: prompt.preview for prompt in (await runtime.prompts.list()).prompts
    }
    return [
        types.Prompt(name=name, description=previews[filename] or None)
        for name, filename in _names([*previews]).items()
    ]


async def file_of(runtime: Runtime, name: str) -> str | None:
    """Return the name of a prompt's file; None if no prompt has this name.

    Raises:
        StorageError: the folder cannot be listed.
    """
    return _names([prompt.filename for prompt in (await runtime.prompts.list()).prompts]).get(name)


async def read_prompt(runtime: Runtime, name: str) -> types.GetPromptResult:
    """Return a prompt as the message of a user, who says it to the model of the client.

    Raises:
        PromptNotFound: no prompt has this name.
        StorageError: it cannot be read.
    """
    filename = await file_of(runtime, name)
    if filename is None:
        raise PromptNotFound(filename=name)
    content = types.TextContent(text=await runtime.prompts.read(filename))
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


def _names(filenames: list[str]) -> dict[str, str]:
    """Return the files by the names of their prompts: without the suffix where that is enough."""
    stems = [PurePath(filename).stem for filename in filenames]
    return {
        stem if stems.count(stem) == 1 else filename: filename
        for stem, filename in zip(stems, filenames, strict=True)
    }
