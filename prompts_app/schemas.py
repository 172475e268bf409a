"""Bodies and answers of ``/system-prompts``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.constants import SYSTEM_PROMPT_CHARACTERS
from mochi_server.errors import JSONObject
from mochi_server.services.system_prompts import FILENAME

SUMMARY: JSONObject = {
    "filename": "helpful.md",
    "preview": "You are a helpful assistant. Answer briefly.",
    "word_count": 7,
}
PROMPT: JSONObject = {
    "filename": "helpful.md",
    "content": "You are a helpful assistant. Answer briefly.",
}
CONTENT: JSONObject = {"content": "You are a helpful assistant. Answer in one sentence."}


# The service checks both, for every caller; here they are only told.
FileName = Annotated[
    str,
    Field(
        description="Ends with .md or .txt; no folders.",
        json_schema_extra={"pattern": f"^{FILENAME.pattern}$"},
    ),
]
Content = Annotated[
    str,
    Field(
        description=f"Not only white space, shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters.",
        json_schema_extra={"pattern": r"\S", "maxLength": SYSTEM_PROMPT_CHARACTERS - 1},
    ),
]


class PromptLine(BaseModel):
    """One prompt file in the list."""

    model_config = ConfigDict(json_schema_extra={"example": SUMMARY})

    filename: str
    preview: str = Field(description="The beginning, at most 100 characters, cut with '...'.")
    word_count: int


class PromptList(BaseModel):
    """Every prompt file, by name."""

    model_config = ConfigDict(json_schema_extra={"example": {"prompts": [SUMMARY]}})

    prompts: list[PromptLine]


class Prompt(BaseModel):
    """A prompt file."""

    model_config = ConfigDict(json_schema_extra={"example": PROMPT})

    filename: str
    content: str


class PromptCreate(BaseModel):
    """A new prompt file."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": PROMPT})

    filename: FileName
    content: Content


class PromptUpdate(BaseModel):
    """The new text of a prompt file."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": CONTENT})

    content: Content
