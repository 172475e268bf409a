"""Requests of AG-UI, as far as they are understood; other fields are ignored.

Clients before version 1.0 name no version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic.alias_generators import to_camel

from mochi_server.errors import JSONObject

from ..common.schemas import AnyTool, History, InterfaceOptions, Several
from ..common.tools import function_schema


class AgUiPart(BaseModel):
    """A part of a request; what is not named is ignored."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)


class ContentText(AgUiPart):
    """A text."""

    type: Literal["text"]
    text: str


class MediaData(AgUiPart):
    """A file in base64."""

    type: Literal["data"]
    value: str
    mime_type: str


class MediaUrl(AgUiPart):
    """Where a file is."""

    type: Literal["url"]
    value: str = Field(description="A data URL.")


class MediaPart(AgUiPart):
    """A file."""

    type: Literal["image", "document"]
    source: Annotated[MediaData | MediaUrl, Field(discriminator="type")]


class BinaryPart(AgUiPart):
    """A file, as clients before 1.0 send it."""

    type: Literal["binary"]
    mime_type: str
    data: str | None = None
    url: str | None = Field(default=None, description="A data URL.")
    filename: str | None = None


Content = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[
        Several[Annotated[ContentText | MediaPart | BinaryPart, Field(discriminator="type")]],
        Tag("parts"),
    ],
    Discriminator(lambda value: "text" if isinstance(value, str) else "parts"),
]


class InputInstruction(AgUiPart):
    """What the developer wants."""

    role: Literal["system", "developer"]
    content: str


class InputQuestion(AgUiPart):
    """What the user says."""

    role: Literal["user"]
    content: Content


class InputFunction(AgUiPart):
    """The function of a call."""

    name: str
    arguments: str = Field(description="A JSON object.")


class InputToolCall(AgUiPart):
    """A call by the model."""

    id: str
    function: InputFunction


class InputReply(AgUiPart):
    """What the model has said."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Several[InputToolCall] | None = None


class InputResult(AgUiPart):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content


class InputThought(AgUiPart):
    """What the model thought."""

    role: Literal["reasoning"]
    content: str


class InputActivity(AgUiPart):
    """What a front end shows; no model gets it."""

    role: Literal["activity"]


RunMessage = Annotated[
    InputInstruction | InputQuestion | InputReply | InputResult | InputThought | InputActivity,
    Field(discriminator="role"),
]


class FrontEndTool(AgUiPart):
    """A function that the client runs."""

    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    parameters: dict[str, Any] | None = None

    def schema_for_model(self) -> JSONObject:
        return function_schema(self.name, self.description, self.parameters)


class ContextItem(AgUiPart):
    """Something that the model is to know."""

    description: str
    value: str


class ResumeEntry(AgUiPart):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] | None = None


class ForwardedProps(InterfaceOptions):
    """What AG-UI has no field for."""

    tools: Several[str] | None = Field(default=None, description="Names of the server's tools.")


class RunAgentInput(AgUiPart):
    """The body of ``POST /api/v1/agui``."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    messages: History[RunMessage]
    tools: Several[AnyTool[FrontEndTool]] = []
    context: Several[ContextItem] = []
    forwarded_props: ForwardedProps = ForwardedProps()
    resume: Several[ResumeEntry] | None = None
