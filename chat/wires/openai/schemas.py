"""Requests of OpenAI's chat completions, as far as they are understood.

Fields that are not named here are ignored, as by other servers of this API.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mochi_server.errors import JSONObject
from sessions_app.schemas import ModelName

from ..common.schemas import (
    MAX_DIMENSIONS,
    Effort,
    Either,
    History,
    RequestPart,
    ServerTools,
    Several,
    TextOr,
)
from ..common.tools import function_schema

MAX_INPUTS = 2048
"""Texts of one request for embeddings; OpenAI's own limit."""


class TextPart(RequestPart):
    """A text."""

    type: Literal["text"]
    text: str


class RefusalPart(RequestPart):
    """A text by which a model refused."""

    type: Literal["refusal"]
    refusal: str


class ImageUrl(RequestPart):
    """Where an image is."""

    url: str = Field(description="A data URL.")


class ImagePart(RequestPart):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileData(RequestPart):
    """A file in base64."""

    file_data: str
    filename: str | None = None


class FilePart(RequestPart):
    """A file."""

    type: Literal["file"]
    file: FileData


TextOnly = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
AnyPart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]


class InstructionMessage(RequestPart):
    """What the developer wants."""

    role: Literal["system", "developer"]
    content: TextOr[Several[TextOnly]]


class QuestionMessage(RequestPart):
    """What the user says."""

    role: Literal["user"]
    content: TextOr[Several[AnyPart]]


class CalledFunction(RequestPart):
    """The function of a call."""

    name: str
    arguments: str = Field(description="A JSON object.")


class FunctionCall(RequestPart):
    """A call of a function by the model."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ReplyMessage(RequestPart):
    """What the model has said."""

    role: Literal["assistant"]
    content: TextOr[Several[TextOnly]] | None = None
    reasoning_content: str | None = None
    tool_calls: Several[FunctionCall] | None = None


class FunctionResult(RequestPart):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: TextOr[Several[TextOnly]]


ChatMessage = Annotated[
    InstructionMessage | QuestionMessage | ReplyMessage | FunctionResult,
    Field(discriminator="role"),
]


class FunctionSchema(RequestPart):
    """A function of the client."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(RequestPart):
    """A function that the client runs."""

    type: Literal["function"]
    function: FunctionSchema

    def schema_for_model(self) -> JSONObject:
        function = self.function
        return function_schema(function.name, function.description, function.parameters)


class NamedFunction(RequestPart):
    """The name of a function."""

    name: str


class ChosenTool(RequestPart):
    """The one tool that the model may call."""

    type: Literal["function"]
    function: NamedFunction
    must_call: ClassVar[bool] = True

    @property
    def names(self) -> list[str]:
        return [self.function.name]


class AllowedFunctions(RequestPart):
    """The tools that the model may call."""

    mode: Literal["auto", "required"]
    tools: Several[ChosenTool]


class AllowedToolChoice(RequestPart):
    """A choice of such tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedFunctions

    @property
    def names(self) -> list[str]:
        return [tool.function.name for tool in self.allowed_tools.tools]

    @property
    def must_call(self) -> bool:
        return self.allowed_tools.mode == "required"


NamedTools = Annotated[ChosenTool | AllowedToolChoice, Field(discriminator="type")]


SomeText = Annotated[str, Field(min_length=1)]


class StreamOptions(RequestPart):
    """What a stream has."""

    include_usage: bool = False


class CreateEmbeddingsRequest(RequestPart):
    """The body of ``POST /v1/embeddings``."""

    model: ModelName
    input: Either[SomeText, Annotated[Several[str], Field(min_length=1, max_length=MAX_INPUTS)]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIMENSIONS)

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class AnswerRequest(RequestPart):
    """What the requests for an answer have in common."""

    model: ModelName
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    metadata: dict[str, Any] | None = None
    # Options of the model, by the names that ``ModelOptions`` has for them.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: TextOr[Several[str]] | None = None
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


class ChatCompletionRequest(AnswerRequest):
    """The body of ``POST /v1/chat/completions``."""

    messages: History[ChatMessage] = Field(min_length=1)
    tools: Several[Annotated[ClientTool | ServerTools, Field(discriminator="type")]] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTools | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    response_format: dict[str, Any] | None = None
    logprobs: Literal[False] | None = None


class TextCompletionRequest(AnswerRequest):
    """The body of ``POST /v1/completions``."""

    prompt: Either[SomeText, Annotated[Several[str], Field(min_length=1, max_length=1)]]
    suffix: Literal[""] | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: None = None

    @property
    def text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]
