"""Bodies and answers of ``/system-prompts``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject

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

    filename: str = Field(description="Ends with .md or .txt; no folders.")
    content: str = Field(description="Not empty, shorter than 10,000 characters.")


class PromptUpdate(BaseModel):
    """The new text of a prompt file."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": CONTENT})

    content: str = Field(description="Not empty, shorter than 10,000 characters.")
