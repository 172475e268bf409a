"""Bodies and answers of the confirmation of tool calls."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_project.schemas import ResponseModel, SessionId, Timestamp, ToolName

REASON_CHARACTERS = 10_000

ConfirmationId = Annotated[str, Field(examples=["conf_0123456789abcdef"])]


class ConfirmRequest(BaseModel):
    """A decision about a call."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"confirmation_id": "conf_0123456789abcdef", "approved": True}
        },
    )

    confirmation_id: str = Field(description="As the event, or the list, has it.")
    approved: StrictBool
    reason: str | None = Field(
        default=None,
        max_length=REASON_CHARACTERS,
        description="Told to the model when the call is denied.",
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="With `approved` true: what the tool gets instead of the model's arguments, "
        "all of them.",
    )


class Confirmed(ResponseModel):
    """The decision counts."""

    confirmation_id: ConfirmationId
    approved: bool = Field(examples=[True])


class OpenConfirmation(ResponseModel):
    """A call that waits for a decision."""

    confirmation_id: ConfirmationId
    session_id: SessionId
    tool_name: ToolName
    tool_source: str = Field(
        description="Where the tool comes from: `directory`, `agents`, ….", examples=["directory"]
    )
    arguments: dict[str, Any] = Field(examples=[{"a": 2, "b": 3}])
    call_index: int = Field(examples=[0])
    tool_call_id: str = Field(examples=["call_1"])
    queue_position: int = Field(
        description="From 1, among the calls that are asked about.", examples=[1]
    )
    queue_total: int = Field(examples=[1])
    asked_at: Timestamp
    expires_at: Timestamp
    agent_name: str | None = Field(
        default=None, description="Whose call it is; absent where the session's own model calls."
    )
    agent_call_id: str | None = Field(
        default=None, description="Which run of the agent, as in its events; absent likewise."
    )


class ConfirmationList(ResponseModel):
    """Every call of the session that waits for a decision, oldest first."""

    confirmations: list[OpenConfirmation]
