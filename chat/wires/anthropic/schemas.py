"""Requests of Anthropic's Messages, as far as they are understood; other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from mochi_server.errors import JSONObject
from sessions_app.schemas import ModelName

from ..common.schemas import History, RequestPart, ServerTools, Several, TextOr, type_of
from ..common.tools import function_schema
from .vendor_tools import VENDOR_TOOLS


class TextBlock(RequestPart):
    """A text."""

    type: Literal["text"]
    text: str


class Base64Source(RequestPart):
    """A file in base64."""

    type: Literal["base64"]
    data: str
    media_type: str | None = None


class UrlSource(RequestPart):
    """A file that the server would have to fetch."""

    type: Literal["url"]
    url: str


class TextSource(RequestPart):
    """A file of text, as it is."""

    type: Literal["text"]
    data: str
    media_type: str | None = None


class ImageBlock(RequestPart):
    """An image."""

    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource, Field(discriminator="type")]


class ContentSource(RequestPart):
    """A document in parts."""

    type: Literal["content"]
    content: TextOr[Several[Annotated[TextBlock | ImageBlock, Field(discriminator="type")]]]

    @property
    def texts(self) -> list[str]:
        if isinstance(self.content, str):
            return [self.content]
        return [part.text for part in self.content if isinstance(part, TextBlock)]

    @property
    def images(self) -> list[ImageBlock]:
        return [part for part in self.content if isinstance(part, ImageBlock)]


class DocumentBlock(RequestPart):
    """A document."""

    type: Literal["document"]
    source: Annotated[
        Base64Source | TextSource | UrlSource | ContentSource, Field(discriminator="type")
    ]
    title: str | None = None


class SearchResultBlock(RequestPart):
    """What a client has found, as a source of the answer."""

    type: Literal["search_result"]
    source: str
    title: str
    content: Several[TextBlock]


ResultBlock = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock, Field(discriminator="type")
]


class ToolResultBlock(RequestPart):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: TextOr[Several[ResultBlock]] | None = None
    is_error: bool | None = None


class ThinkingBlock(RequestPart):
    """What the model has thought."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(RequestPart):
    """Data that the model's provider wants back."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(RequestPart):
    """A call of a tool by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class CompactionBlock(RequestPart):
    """What the vendor has made of the messages before it, which are not sent any more."""

    type: Literal["compaction"]
    content: str | None = None

    @property
    def text(self) -> str:
        return self.content or ""


class OtherBlock(RequestPart):
    """A block that models of others cannot read, such as a call of a tool of the vendor's."""

    type: str


UserBlock = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolResultBlock,
    Field(discriminator="type"),
]
_REPLY_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "compaction")


def _reply_block(value: object) -> str | None:
    kind = type_of(value)
    if not isinstance(kind, str):
        return None
    return kind if kind in _REPLY_BLOCKS else "other"


ReplyBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[CompactionBlock, Tag("compaction")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(_reply_block),
]
Texts = TextOr[Several[TextBlock]]


class UserTurn(RequestPart):
    """What the user says, and results of calls."""

    role: Literal["user"]
    content: TextOr[Several[UserBlock]]


class ReplyTurn(RequestPart):
    """What the model has said."""

    role: Literal["assistant"]
    content: TextOr[Several[ReplyBlock]]


class SystemTurn(RequestPart):
    """An instruction within the conversation."""

    role: Literal["system"]
    content: Texts


AnyTurn = Annotated[UserTurn | ReplyTurn | SystemTurn, Field(discriminator="role")]


class CustomTool(RequestPart):
    """A function that the client runs."""

    type: Literal["custom"] | None = None
    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    input_schema: dict[str, Any]

    def schema_for_model(self) -> JSONObject:
        return function_schema(self.name, self.description, self.input_schema)


class VendorTool(RequestPart):
    """A function that the client runs, and that the vendor has described."""

    type: str
    name: str = Field(min_length=1, max_length=128)

    def schema_for_model(self) -> JSONObject:
        function: JSONObject = {"name": self.name, **VENDOR_TOOLS[self.type]}
        return {"type": "function", "function": function}


def _tool(value: object) -> str | None:
    kind = type_of(value)
    if kind is None:
        return "custom"
    if kind in ("custom", "mochi"):
        return str(kind)
    return "vendor" if isinstance(kind, str) and kind in VENDOR_TOOLS else None


AnyTool = Annotated[
    Annotated[CustomTool, Tag("custom")]
    | Annotated[VendorTool, Tag("vendor")]
    | Annotated[ServerTools, Tag("mochi")],
    Discriminator(
        _tool,
        custom_error_type="tool_not_offered",
        custom_error_message="Only tools of the client (with input_schema, or bash, text_editor "
        'and memory) and of this server ({"type": "mochi", "names": [...]}) are offered.',
    ),
]
TOOLS: TypeAdapter[list[AnyTool]] = TypeAdapter(list[AnyTool])


class ToolChoice(RequestPart):
    """Which tools the model may call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None

    @property
    def allowed(self) -> list[str] | None:
        """Names of those that it may call; None: all."""
        if self.type == "tool":
            return [self.name or ""]
        return [] if self.type == "none" else None


class Thinking(RequestPart):
    """Whether the model thinks."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class SchemaFormat(RequestPart):
    """The JSON schema of the answer."""

    type: Literal["json_schema"]
    content: dict[str, Any] = Field(alias="schema")


class OutputConfig(RequestPart):
    """How the answer is to be."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: SchemaFormat | None = None


class TokenCountRequest(RequestPart):
    """The body of ``POST /v1/messages/count_tokens``."""

    model: ModelName
    messages: History[AnyTurn] = Field(min_length=1)
    system: Texts | None = None
    tools: Several[AnyTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: SchemaFormat | None = Field(default=None, description="Its former place.")
    mcp_servers: list[Any] | None = Field(default=None, max_length=0)


class NewThread(RequestPart):
    """The server is to keep the conversation."""

    type: Literal["create"]


class ThreadAfter(RequestPart):
    """The server has the conversation up to one of its answers."""

    type: Literal["continue"]
    previous_message_id: str


class MessagesRequest(TokenCountRequest):
    """The body of ``POST /v1/messages``."""

    thread: Annotated[NewThread | ThreadAfter, Field(discriminator="type")] | None = None
    compaction: None = Field(default=None, description="Its answer would be no reply.")
    max_tokens: int = Field(ge=1)
    stream: bool = False
    metadata: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: Several[str] | None = None

    @property
    def options(self) -> JSONObject:
        """The options of the model that have a value."""
        options: JSONObject = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": [*self.stop_sequences] if self.stop_sequences else None,
            "max_tokens": self.max_tokens,
        }
        return {name: value for name, value in options.items() if value is not None}
