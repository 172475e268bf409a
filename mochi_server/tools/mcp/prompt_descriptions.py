"""Prompts as MCP servers describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...core.logs import one_line
from ...errors import JSONObject
from ..functions.results import clean

if TYPE_CHECKING:
    from mcp_types import Prompt

MAX_PROMPTS = 1_000
"""Prompts of one server."""
MAX_ARGUMENTS = 100
"""Arguments of one prompt."""
MAX_OWN_NAME = 256
MAX_DESCRIPTION = 10_000
"""Characters; the rest is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpPromptArgument:
    """An argument of a prompt, which is a text."""

    name: str
    description: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class McpPromptDescription:
    """A prompt of a server, as the server describes it."""

    name: str
    """The server's own name for it."""
    title: str | None
    description: str
    arguments: Sequence[McpPromptArgument]

    def as_json(self) -> JSONObject:
        return asdict(self)


def describe_prompt(prompt: Prompt) -> McpPromptDescription | None:
    """Return what the SDK read of a prompt; None if it cannot be used."""
    arguments = prompt.arguments or []
    names = [prompt.name, *(each.name for each in arguments)]
    if len(arguments) > MAX_ARGUMENTS or not all(map(_is_name, names)):
        return None
    return McpPromptDescription(
        name=prompt.name,
        title=None if prompt.title is None else one_line(clean(prompt.title)),
        description=clean(prompt.description or "")[:MAX_DESCRIPTION],
        arguments=[
            McpPromptArgument(
                name=each.name,
                description=clean(each.description or "")[:MAX_DESCRIPTION],
                required=bool(each.required),
            )
            for each in arguments
        ],
    )


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_OWN_NAME and name.isprintable()


def read_stored_prompt(value: Any) -> McpPromptDescription:  # noqa: ANN401 - JSON of a file
    """Return what :meth:`McpPromptDescription.as_json` wrote. Raises KeyError, TypeError."""
    arguments = [McpPromptArgument(**each) for each in value["arguments"]]
    return McpPromptDescription(**{**value, "arguments": arguments})
