"""Bodies and answers of ``/system-prompts``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mochi_project.schemas import ResponseModel
from mochi_server.constants import SYSTEM_PROMPT_CHARACTERS
from mochi_server.services.system_prompts import FILENAME

FileName = Annotated[str, Field(examples=["helpful.md"])]
McpPromptName = Annotated[
    str, Field(description="`{server}__{prompt}`.", examples=["travel__guide"])
]
PromptText = Annotated[str, Field(examples=["You are a helpful assistant. Answer briefly."])]

# In a body, both are described here and checked by the service, for every caller.
NewFileName = Annotated[
    FileName,
    Field(
        description="Ends with .md or .txt; no folders.",
        json_schema_extra={"pattern": f"^{FILENAME.pattern}$"},
    ),
]
NewPromptText = Annotated[
    PromptText,
    Field(
        description=f"Not only white space, shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters.",
        json_schema_extra={"pattern": r"\S", "maxLength": SYSTEM_PROMPT_CHARACTERS - 1},
    ),
]


class PromptLine(ResponseModel):
    """One prompt file in the list."""

    filename: FileName
    preview: PromptText = Field(
        description="The first 100 characters in one line; '...' follows if there are more."
    )
    word_count: int = Field(examples=[7])


class UnusablePrompt(ResponseModel):
    """A prompt file that cannot be used."""

    filename: FileName
    reason: str = Field(examples=["it is not UTF-8 text, but UTF-16; save it as UTF-8"])


class PromptList(ResponseModel):
    """Every prompt file, by name."""

    prompts: list[PromptLine]
    problems: list[UnusablePrompt] = Field(
        description="Files that cannot be used, such as those that are not UTF-8 text."
    )


class Prompt(ResponseModel):
    """A prompt file."""

    filename: FileName
    content: PromptText


class PromptArgument(ResponseModel):
    """An argument of a prompt."""

    name: str = Field(examples=["city"])
    description: str = Field(examples=["Where the user is"])
    required: bool = Field(examples=[True])


class McpPromptLine(ResponseModel):
    """A prompt of an MCP server; what the server says is shown without hidden characters."""

    name: McpPromptName
    server: str = Field(examples=["travel"])
    title: str | None = Field(examples=["Guide"])
    description: str = Field(examples=["Speaks as a guide to a city."])
    arguments: list[PromptArgument]


class McpPromptList(ResponseModel):
    """The prompts of all MCP servers, as far as they are known."""

    prompts: list[McpPromptLine]


class McpPromptDetail(McpPromptLine):
    """A prompt of an MCP server, filled in."""

    content: PromptText
    shown_content: str = Field(
        description="The text for people: hidden characters, and those that look like others, are "
        "escapes.",
        examples=["You are a helpful assistant. Answer briefly."],
    )


class PromptCreate(BaseModel):
    """A new prompt file."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"filename": "helpful.md", "content": "You are a helpful assistant."}
        },
    )

    filename: NewFileName
    content: NewPromptText


class PromptUpdate(BaseModel):
    """The new text of a prompt file."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"content": "You are a helpful assistant. Be brief."}},
    )

    content: NewPromptText
