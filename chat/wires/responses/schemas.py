"""Requests of OpenAI's Responses, as far as they are understood; other fields are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from mochi_server.errors import JSONObject
from sessions_app.schemas import ModelName

from ..common.schemas import Effort, History, RequestPart, ServerTools, Several, TextOr, type_of
from ..common.tools import function_schema

SERVER_LABEL = "mochi"
"""Name of this server in items of calls of its tools."""

MAX_TYPE_CHARACTERS = 64


class InputText(RequestPart):
    """A text of the user, or of an answer."""

    type: Literal["input_text", "output_text", "summary_text", "reasoning_text"]
    text: str


class InputRefusal(RequestPart):
    """A text by which a model refused."""

    type: Literal["refusal"]
    refusal: str


class InputImage(RequestPart):
    """An image."""

    type: Literal["input_image"]
    image_url: str = Field(description="A data URL.")


class InputFile(RequestPart):
    """A file."""

    type: Literal["input_file"]
    file_data: str
    filename: str | None = None


InputPart = Annotated[
    InputText | InputRefusal | InputImage | InputFile, Field(discriminator="type")
]
InputContent = TextOr[Several[InputPart]]


class InputMessage(RequestPart):
    """A message."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: InputContent


class InputCall(RequestPart):
    """A call of the client's function."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class InputCallOutput(RequestPart):
    """The result of a call of the client's function."""

    type: Literal["function_call_output"]
    call_id: str
    output: InputContent


class InputReasoning(RequestPart):
    """What the model thought."""

    type: Literal["reasoning"]
    content: Several[InputText] | None = None
    summary: Several[InputText] | None = None

    @property
    def text(self) -> str:
        """What it thought, or the summary of it."""
        return "".join(part.text for part in self.content or self.summary or ())


class InputApproval(RequestPart):
    """A decision about a call of a tool of the server."""

    type: Literal["mcp_approval_response"]
    approval_request_id: str
    approve: bool
    reason: str | None = None


class InputReference(RequestPart):
    """An item of an earlier response, by its id."""

    type: Literal["item_reference"]
    id: str


class InputCompaction(RequestPart):
    """What stands for earlier messages, as ``POST /v1/responses/compact`` has made it."""

    type: Literal["compaction"]
    encrypted_content: str


class InputOther(RequestPart):
    """An item that no message of a session can be: of a tool of the vendor's, or of this server's.

    The session has the latter, which the client sends back.
    """

    type: str = Field(max_length=MAX_TYPE_CHARACTERS)
    server_label: str | None = None


_KINDS = (
    *("message", "function_call", "function_call_output", "reasoning"),
    *("item_reference", "mcp_approval_response", "compaction"),
)


def _kind_of(value: object) -> str:
    kind = type_of(value)
    if kind is None:
        return "message"
    return kind if kind in _KINDS else "other"


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")]
    | Annotated[InputReference, Tag("item_reference")]
    | Annotated[InputApproval, Tag("mcp_approval_response")]
    | Annotated[InputCompaction, Tag("compaction")]
    | Annotated[InputOther, Tag("other")],
    Discriminator(_kind_of),
]


def ignored_items(items: Sequence[InputItem]) -> list[str]:
    """Return the types of the items that are left out, and that the server does not have."""
    others = (item for item in items if isinstance(item, InputOther))
    return [*dict.fromkeys(item.type for item in others if item.server_label != SERVER_LABEL)]


Input = TextOr[History[InputItem]]


class OfferedFunction(RequestPart):
    """A function that the client runs."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def schema_for_model(self) -> JSONObject:
        return function_schema(self.name, self.description, self.parameters)


class OtherTool(RequestPart):
    """A tool of the vendor's, which is not offered here."""

    type: str
    name: str | None = None


def _tool_kind(value: object) -> str:
    kind = type_of(value)
    return kind if kind in ("function", "mochi") else "other"


class ChosenFunction(RequestPart):
    """The one function that the model may call."""

    type: Literal["function"]
    name: str
    must_call: ClassVar[bool] = True

    @property
    def names(self) -> list[str]:
        return [self.name]


class AllowedTool(RequestPart):
    """A tool that the model may call."""

    type: str
    name: str | None = None


class AllowedTools(RequestPart):
    """The tools that the model may call."""

    type: Literal["allowed_tools"]
    tools: Several[AllowedTool]
    mode: Literal["none", "auto", "required"] = "auto"

    @property
    def names(self) -> list[str]:
        named = () if self.mode == "none" else self.tools
        return [tool.name for tool in named if tool.name is not None]

    @property
    def must_call(self) -> bool:
        return self.mode == "required"


def _choice_kind(value: object) -> str:
    return "word" if isinstance(value, str) else str(type_of(value))


OfferedTool = Annotated[
    Annotated[OfferedFunction, Tag("function")]
    | Annotated[ServerTools, Tag("mochi")]
    | Annotated[OtherTool, Tag("other")],
    Discriminator(_tool_kind),
]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[ChosenFunction, Tag("function")]
    | Annotated[AllowedTools, Tag("allowed_tools")],
    Discriminator(_choice_kind),
]


class Reasoning(RequestPart):
    """Whether the model thinks, and whether the client sees it as a summary."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class TextSettings(RequestPart):
    """The form of the answer."""

    format: dict[str, Any] | None = None

    @property
    def response_format(self) -> JSONObject | None:
        """The form as chat completions have it."""
        if self.format is None or self.format.get("type") != "json_schema":
            return self.format
        others = {key: value for key, value in self.format.items() if key != "type"}
        return {"type": "json_schema", "json_schema": others}


class NamedConversation(RequestPart):
    """A conversation by its id."""

    id: str


class ResponseQuestion(RequestPart):
    """What a request asks, and after what."""

    model: ModelName | None
    input: Input
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | NamedConversation | None = None
    tools: Several[OfferedTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    reasoning: Reasoning | None = None
    text: TextSettings | None = None
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_output_tokens: int | None = None

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [InputMessage(role="user", content=self.input)]
        return self.input

    @property
    def usable_tools(self) -> list[OfferedFunction | ServerTools]:
        """The tools that are offered here."""
        return [tool for tool in self.tools or () if not isinstance(tool, OtherTool)]

    @property
    def options(self) -> JSONObject:
        """The options of the model that have a value."""
        names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        options = {name: getattr(self, name) for name in names}
        options["max_tokens"] = self.max_output_tokens
        return {name: value for name, value in options.items() if value is not None}


class ResponseRequest(ResponseQuestion):
    """The body of ``POST /v1/responses``."""

    model: ModelName
    stream: bool = False
    store: bool = True
    background: bool = False
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class InputTokensRequest(ResponseQuestion):
    """The body of ``POST /v1/responses/input_tokens``."""

    model: ModelName | None = None
    input: Input = Field(default=[])


class CompactRequest(ResponseQuestion):
    """The body of ``POST /v1/responses/compact``."""

    input: Input = Field(default=[])

    @field_validator("input", mode="before")
    @classmethod
    def _is_absent(cls, value: object) -> object:
        return [] if value is None else value


class ConversationRequest(RequestPart):
    """The body of ``POST /v1/conversations``."""

    items: Several[InputItem] = Field(default=[], max_length=20)
    metadata: dict[str, str] | None = None


class ConversationChange(RequestPart):
    """The body of ``POST /v1/conversations/{id}``."""

    metadata: dict[str, str]


class NewItems(RequestPart):
    """The body of ``POST /v1/conversations/{id}/items``."""

    items: Several[InputItem] = Field(min_length=1, max_length=20)
