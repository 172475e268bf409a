"""Requests of OpenAI's Responses, as far as they are understood; other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from mochi_server.errors import JSONObject
from sessions_app.schemas import ModelName

from ..common.schemas import Effort, History, RequestPart, ServerTools


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
InputContent = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[InputPart], Tag("parts")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "parts"),
]


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
    content: list[InputText] | None = None


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


class InputOther(RequestPart):
    """An item of the server's, which the client sends back; the server has it."""

    type: Literal["mcp_call", "mcp_list_tools", "mcp_approval_request"]


_OTHERS = ("mcp_call", "mcp_list_tools", "mcp_approval_request")


def _kind_of(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "other" if kind in _OTHERS else str(kind or "message")


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")]
    | Annotated[InputReference, Tag("item_reference")]
    | Annotated[InputApproval, Tag("mcp_approval_response")]
    | Annotated[InputOther, Tag("other")],
    Discriminator(_kind_of),
]


class OfferedFunction(RequestPart):
    """A function that the client runs."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def function_name(self) -> str:
        return self.name

    def schema_for_model(self) -> JSONObject:
        parameters = self.parameters or {"type": "object", "properties": {}}
        function: JSONObject = {
            "name": self.name,
            "description": self.description or "",
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


class OtherTool(RequestPart):
    """A tool of the vendor's, which is not offered here."""

    type: str
    name: str | None = None


def _tool_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if kind in ("function", "mochi") else "other"


class ChosenFunction(RequestPart):
    """The one function that the model may call."""

    type: Literal["function"]
    name: str

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
    tools: list[AllowedTool]
    mode: Literal["none", "auto", "required"] = "auto"

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools if tool.name is not None]


def _choice_kind(value: object) -> str:
    if isinstance(value, str):
        return "word"
    return str(value.get("type") if isinstance(value, dict) else getattr(value, "type", None))


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
    """Whether the model thinks."""

    effort: Effort | None = None


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


class ResponseRequest(RequestPart):
    """The body of ``POST /v1/responses``."""

    model: ModelName
    input: Annotated[
        Annotated[str, Tag("text")] | Annotated[History[InputItem], Tag("items")],
        Discriminator(lambda value: "text" if isinstance(value, str) else "items"),
    ]
    instructions: str | None = None
    stream: bool = False
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    conversation: str | NamedConversation | None = None
    tools: list[OfferedTool] | None = None
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
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @property
    def usable_tools(self) -> list[OfferedFunction | ServerTools]:
        """The tools that are offered here."""
        return [tool for tool in self.tools or () if not isinstance(tool, OtherTool)]

    @property
    def calls_no_tool(self) -> bool:
        """Whether the model may call no tool."""
        choice = self.tool_choice
        return (choice.mode if isinstance(choice, AllowedTools) else choice) == "none"

    @property
    def must_call_tool(self) -> bool:
        """Whether the model must call a tool."""
        choice = self.tool_choice
        if isinstance(choice, ChosenFunction):
            return True
        return (choice.mode if isinstance(choice, AllowedTools) else choice) == "required"

    @property
    def options(self) -> JSONObject:
        """The options of the model that have a value."""
        names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        options = {name: getattr(self, name) for name in names}
        options["max_tokens"] = self.max_output_tokens
        return {name: value for name, value in options.items() if value is not None}


class ConversationRequest(RequestPart):
    """The body of ``POST /v1/conversations``."""

    items: list[InputItem] = Field(default=[], max_length=20)
    metadata: dict[str, str] | None = None


class ConversationChange(RequestPart):
    """The body of ``POST /v1/conversations/{id}``."""

    metadata: dict[str, str]


class NewItems(RequestPart):
    """The body of ``POST /v1/conversations/{id}/items``."""

    items: list[InputItem] = Field(min_length=1, max_length=20)
