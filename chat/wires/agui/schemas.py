"""Requests of AG-UI, as far as they are understood; other fields are ignored.

Clients before version 1.0 name no version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mochi_server.errors import JSONObject

from ..common.schemas import AnyTool, CamelPart, History, InterfaceOptions, Several, TextOr
from ..common.tools import function_schema
from ..openai.schemas import FunctionCall


class ContentText(CamelPart):
    """A text."""

    type: Literal["text"]
    text: str


class MediaData(CamelPart):
    """A file in base64."""

    type: Literal["data"]
    value: str
    mime_type: str


class MediaUrl(CamelPart):
    """Where a file is."""

    type: Literal["url"]
    value: str = Field(description="A data URL.")


class MediaPart(CamelPart):
    """A file."""

    type: Literal["image", "document"]
    source: Annotated[MediaData | MediaUrl, Field(discriminator="type")]


class BinaryPart(CamelPart):
    """A file, as clients before 1.0 send it."""

    type: Literal["binary"]
    mime_type: str
    data: str | None = None
    url: str | None = Field(default=None, description="A data URL.")
    filename: str | None = None


Content = TextOr[
    Several[Annotated[ContentText | MediaPart | BinaryPart, Field(discriminator="type")]]
]


class InputInstruction(CamelPart):
    """What the developer wants."""

    role: Literal["system", "developer"]
    content: str


class InputQuestion(CamelPart):
    """What the user says."""

    role: Literal["user"]
    content: Content


class InputReply(CamelPart):
    """What the model has said."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Several[FunctionCall] | None = None


class InputResult(CamelPart):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content


class InputThought(CamelPart):
    """What the model thought."""

    role: Literal["reasoning"]
    content: str


class InputActivity(CamelPart):
    """What a front end shows; no model gets it."""

    role: Literal["activity"]


RunMessage = Annotated[
    InputInstruction | InputQuestion | InputReply | InputResult | InputThought | InputActivity,
    Field(discriminator="role"),
]


class FrontEndTool(CamelPart):
    """A function that the client runs."""

    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    parameters: dict[str, Any] | None = None

    def schema_for_model(self) -> JSONObject:
        return function_schema(self.name, self.description, self.parameters)


class ContextItem(CamelPart):
    """Something that the model is to know."""

    description: str
    value: str


class ResumeEntry(CamelPart):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] | None = None


class ForwardedProps(InterfaceOptions):
    """What AG-UI has no field for."""

    tools: Several[str] | None = Field(default=None, description="Names of the server's tools.")


class RunAgentInput(CamelPart):
    """The body of ``POST /api/v1/agui``."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    messages: History[RunMessage]
    tools: Several[AnyTool[FrontEndTool]] = Field(default=[])
    context: Several[ContextItem] = Field(default=[])
    forwarded_props: ForwardedProps = ForwardedProps()
    resume: Several[ResumeEntry] | None = None
