"""What the routes of turns take, and what they answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from mochi_project.schemas import ResponseModel, SessionId
from mochi_server.chat.control import WhenBusy
from mochi_server.protocol.messages import AssistantMessage
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import ResponseFormat

from .attachments import Attachments
from .confirmations import DecisionBody, OpenConfirmation
from .examples import USED_WINDOW

OnDisconnect = Annotated[
    Literal["cancel", "continue"] | None,
    Field(
        description="What the run does when its last reader has left. Absent or null: what "
        "`MOCHI_ON_DISCONNECT` says."
    ),
]

WhenBusyField = Annotated[
    WhenBusy,
    Field(
        description="While another run of the session goes on: `refuse` answers `SESSION_BUSY`, "
        "`queue` runs after it, `interrupt` stops it, keeps what it has said, and runs."
    ),
]

OptionsOfTurn = Annotated[
    ModelOptions | None,
    Field(description="For this turn; what it does not name is as the session has it."),
]

AnswerFormat = Annotated[
    ResponseFormat | None,
    Field(
        description="The form of the final answer: JSON of a schema, or any JSON object. A reply "
        "that does not have it is asked for once more."
    ),
]

IgnoredOptions = Annotated[
    list[str],
    Field(
        description="Options that the model's provider does not take, `response_format` among "
        "them; only where there are some.",
        examples=[["min_p"]],
    ),
]


class ChatRequest(BaseModel):
    """One user message, or none to answer the last one anew."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"message": "What is the capital of France?", "think": False},
            "not": {
                "anyOf": [
                    {
                        "required": ["attachments"],
                        "properties": {"attachments": {"minItems": 1}, "message": {"type": "null"}},
                    },
                    {
                        "required": ["keep", "message"],
                        "properties": {"keep": {"const": True}, "message": {"type": "string"}},
                    },
                ]
            },
        },
    )

    message: str | None = Field(
        default=None,
        pattern=r"\S",
        description="Not only white space. Absent: the last user message is answered again; what "
        "follows it stays until another answer comes.",
    )
    attachments: Attachments = []
    keep: StrictBool = Field(
        default=False,
        description="Only without `message`: what is replaced is kept as a variant.",
    )
    think: StrictBool | Literal["low", "medium", "high", "max"] | None = Field(
        default=None,
        description="Let the model think first. Absent or null: as the preset says; else false.",
    )
    options: OptionsOfTurn = None
    response_format: AnswerFormat = None
    confirmations: Literal["wait", "deny"] | None = Field(
        default=None,
        description="Whether calls that a person must confirm are waited for, or denied at once. "
        "Absent: a stream waits, a reply in one piece denies.",
    )
    on_disconnect: OnDisconnect = None
    when_busy: WhenBusyField = "refuse"

    @model_validator(mode="after")
    def _attached_to_a_message(self) -> ChatRequest:
        if self.attachments and self.message is None:
            raise ValueError("attachments need a message: the last one keeps its own")
        if self.keep and self.message is not None:
            raise ValueError("keep is for answering the last message again, without a new one")
        return self


class UsedWindow(ResponseModel):
    """The context window that an answer was made with."""

    current_window: int | None = Field(
        description="Tokens; null when it is not known.", examples=[8192]
    )
    usage_tokens: int = Field(description="Tokens of prompt and reply together.", examples=[165])
    reason: str = Field(description="Why it is so large.", examples=["initial_setup"])
    dropped_messages: int = Field(
        description="Messages that did not fit and were not sent.", examples=[0]
    )
    summarised_messages: int = Field(
        description="Messages in whose place a summary was sent.", examples=[0]
    )
    shortened_results: int = Field(
        description="Old results of tools that were sent without their middle.", examples=[0]
    )
    tool_tokens: int = Field(
        description="Tokens of the tools that were offered last, estimated.", examples=[0]
    )


class ExecutedToolCall(ResponseModel):
    """A call of the turn, and what became of it."""

    tool_name: str
    arguments: dict[str, Any] = Field(description="What ran: as the model or a person has them.")
    call_index: int = Field(description="Position in the model's reply, from 0.")
    tool_call_id: str
    success: bool
    result: str | None
    error_message: str | None
    code: str | None = Field(default=None, description="Only where the failure has a name.")
    confirmation_id: str | None = Field(default=None, description="Only if a person was asked.")
    approved: bool | None = Field(default=None, description="Only if a person was asked.")
    edited: bool | None = Field(default=None, description="Only if a person was asked.")
    agent_events: list[dict[str, Any]] = Field(
        default=[], description="Only of the tool `agent`: what it did, a `ChatEvent` each."
    )


class ChatReply(ResponseModel):
    """The whole answer."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "session_id": "a1b2c3d4e5",
                "message": {
                    "role": "assistant",
                    "content": "The capital of France is Paris.",
                    "model": "qwen3:14b",
                    "message_id": "f1e2d3c4b5",
                    "timestamp": "2026-01-15T10:35:00.000000Z",
                    "eval_count": 45,
                    "prompt_eval_count": 120,
                },
                "tool_calls_executed": [],
                "context_window": USED_WINDOW,
                "finish_reason": "stop",
            }
        }
    )

    session_id: SessionId
    message: AssistantMessage
    tool_calls_executed: list[ExecutedToolCall]
    context_window: UsedWindow
    finish_reason: str | None = Field(description="`stop`, `length`, … as the provider says it.")
    tool_rounds_exhausted: bool = Field(
        default=False, description="Only when true: the limit of tool rounds forced this answer."
    )
    ignored_options: IgnoredOptions = Field(default=[])


class _OfConfirmation(BaseModel):
    confirmation_id: str = Field(description="As the event, or the list, has it.")


class ConfirmRequest(DecisionBody, _OfConfirmation):  # the id comes first
    """A decision about a call."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"confirmation_id": "conf_0123456789abcdef", "approved": True}
        },
    )


class ConfirmationList(ResponseModel):
    """Every call of the session that waits for a decision, oldest first."""

    confirmations: list[OpenConfirmation]
