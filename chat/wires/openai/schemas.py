"""Requests of OpenAI's chat completions, as far as they are understood.

Fields that are not named here are ignored, as by other servers of this API.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from mochi_server.errors import JSONObject

MAX_MESSAGES = 100_000

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TextPart(_Part):
    """A text."""

    type: Literal["text"]
    text: str


class RefusalPart(_Part):
    """A text by which a model refused."""

    type: Literal["refusal"]
    refusal: str


class ImageUrl(_Part):
    """Where an image is."""

    url: str = Field(description="A data URL.")


class ImagePart(_Part):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileData(_Part):
    """A file in base64."""

    file_data: str
    filename: str | None = None


class FilePart(_Part):
    """A file."""

    type: Literal["file"]
    file: FileData


TextOnly = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
AnyPart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]


class InstructionMessage(_Part):
    """What the developer wants."""

    role: Literal["system", "developer"]
    content: str | list[TextOnly]


class QuestionMessage(_Part):
    """What the user says."""

    role: Literal["user"]
    content: str | list[AnyPart]


class CalledFunction(_Part):
    """The function of a call."""

    name: str
    arguments: str = Field(description="A JSON object.")


class FunctionCall(_Part):
    """A call of a function by the model."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ReplyMessage(_Part):
    """What the model has said."""

    role: Literal["assistant"]
    content: str | list[TextOnly] | None = None
    reasoning_content: str | None = None
    tool_calls: list[FunctionCall] | None = None


class FunctionResult(_Part):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: str | list[TextOnly]


ChatMessage = Annotated[
    InstructionMessage | QuestionMessage | ReplyMessage | FunctionResult,
    Field(discriminator="role"),
]


class FunctionSchema(_Part):
    """A function of the client."""

    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ClientTool(_Part):
    """A function that the client runs."""

    type: Literal["function"]
    function: FunctionSchema

    def schema_for_model(self) -> JSONObject:
        return {"type": "function", "function": self.function.model_dump(mode="json")}


class ServerTools(_Part):
    """Tools of this server, which it runs itself."""

    type: Literal["mochi"]
    names: list[str]


class NamedFunction(_Part):
    """The name of a function."""

    name: str


class ChosenTool(_Part):
    """The one tool that the model may call."""

    type: Literal["function"]
    function: NamedFunction


class StreamOptions(_Part):
    """What a stream has."""

    include_usage: bool = False


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "texts"


class ChatCompletionRequest(_Part):
    """The body of ``POST /v1/chat/completions``."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[Annotated[ClientTool | ServerTools, Field(discriminator="type")]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    metadata: dict[str, Any] | None = None
    # Options of the model, by the names that ``ModelOptions`` has for them.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[str], Tag("texts")], Discriminator(_kind)
        ]
        | None
    ) = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    # Options of other servers of this API.
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    keep_alive: str | float | None = None

    @property
    def options(self) -> JSONObject:
        """The options of the model that have a value."""
        names = [*("temperature", "top_p", "top_k", "min_p", "seed", "stop", "keep_alive")]
        names += ("presence_penalty", "frequency_penalty", "repeat_penalty")
        options = {name: getattr(self, name) for name in names}
        options["max_tokens"] = self.max_completion_tokens or self.max_tokens
        return {name: value for name, value in options.items() if value is not None}
