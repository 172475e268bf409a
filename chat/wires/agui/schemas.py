"""Requests of AG-UI, as far as they are understood; other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag
from pydantic.alias_generators import to_camel

from mochi_server.errors import JSONObject
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import ResponseFormat
from sessions_app.schemas import ModelName

from ..common.schemas import History


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


Content = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[
        list[Annotated[ContentText | MediaPart, Field(discriminator="type")]], Tag("parts")
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
    tool_calls: list[InputToolCall] | None = None


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
        function: JSONObject = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


class ContextItem(AgUiPart):
    """Something that the model is to know."""

    description: str
    value: str


class ResumeEntry(AgUiPart):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] | None = None


class ForwardedProps(BaseModel):
    """What AG-UI has no field for."""

    model_config = ConfigDict(extra="ignore")

    model: ModelName | None = None
    tools: list[str] | None = Field(default=None, description="Names of the server's tools.")
    session_id: str | None = None
    think: StrictBool | Literal["low", "medium", "high", "max"] = False
    options: ModelOptions = ModelOptions()
    response_format: ResponseFormat | None = None


class RunAgentInput(AgUiPart):
    """The body of ``POST /api/v1/agui``."""

    thread_id: str
    run_id: str
    messages: History[RunMessage]
    tools: list[FrontEndTool] = []
    context: list[ContextItem] = []
    forwarded_props: ForwardedProps = ForwardedProps()
    resume: list[ResumeEntry] | None = None
