"""Requests of the AI SDK's ``DefaultChatTransport``; other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from mochi_server.errors import JSONObject

from ..common.schemas import CamelPart, History, InterfaceOptions, ServerTools, Several, type_of
from ..common.tools import function_schema

TOOL = "tool-"
"""What stands before the name of a tool in the type of a part."""


class UITextPart(CamelPart):
    """A text, or what the model thought."""

    type: Literal["text", "reasoning"]
    text: str


class UIFilePart(CamelPart):
    """A file."""

    type: Literal["file"]
    media_type: str
    url: str = Field(description="A data URL.")
    filename: str | None = None


class UIStepPart(CamelPart):
    """The begin of a reply of the model."""

    type: Literal["step-start"]


class UIApproval(CamelPart):
    """What was asked about a call, and decided."""

    id: str
    approved: bool | None = None
    reason: str | None = None


class UIToolPart(CamelPart):
    """A call and its result."""

    type: str
    tool_name: str | None = Field(default=None, description="Only if the type does not have it.")
    tool_call_id: str
    state: str
    input: JsonValue = None
    output: JsonValue = None
    error_text: str | None = None
    approval: UIApproval | None = None

    @property
    def name(self) -> str:
        return self.type.removeprefix(TOOL) if self.tool_name is None else self.tool_name


class UIOtherPart(CamelPart):
    """A part that no model gets, such as a source or data."""

    type: str


def _kind(value: object) -> str:
    kind = str(type_of(value))
    if kind in ("text", "reasoning"):
        return "text"
    if kind == "dynamic-tool" or kind.startswith(TOOL):
        return "tool"
    return kind if kind in ("file", "step-start") else "other"


Part = Annotated[
    Annotated[UITextPart, Tag("text")]
    | Annotated[UIFilePart, Tag("file")]
    | Annotated[UIStepPart, Tag("step-start")]
    | Annotated[UIToolPart, Tag("tool")]
    | Annotated[UIOtherPart, Tag("other")],
    Discriminator(_kind),
]


class UIMessage(CamelPart):
    """A message of a front end."""

    id: str
    role: Literal["system", "user", "assistant"]
    parts: Several[Part]


class UITool(CamelPart):
    """A function that the client runs."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    input_schema: dict[str, Any] | None = None

    def schema_for_model(self) -> JSONObject:
        return function_schema(self.name, self.description, self.input_schema)


class UIChatRequest(InterfaceOptions):
    """The body of ``POST /api/v1/ui/chat``; the transport's ``body`` has what is not its own."""

    messages: History[UIMessage] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    tools: Several[Annotated[UITool | ServerTools, Field(discriminator="type")]] | None = None
