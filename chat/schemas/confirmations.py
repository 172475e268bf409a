"""Bodies and answers of the confirmation of tool calls."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_server.errors import JSONObject

REASON_CHARACTERS = 10_000

DECISION: JSONObject = {"confirmation_id": "conf_0123456789abcdef", "approved": True}
DECIDED: JSONObject = {"confirmation_id": "conf_0123456789abcdef", "approved": True}
OPEN: JSONObject = {
    "confirmation_id": "conf_0123456789abcdef",
    "session_id": "a1b2c3d4e5",
    "tool_name": "add_numbers",
    "tool_source": "directory",
    "arguments": {"a": 2, "b": 3},
    "call_index": 0,
    "tool_call_id": "call_1",
    "queue_position": 1,
    "queue_total": 1,
    "asked_at": "2026-01-15T10:30:00.000000Z",
    "expires_at": "2026-01-15T10:35:00.000000Z",
}


class ConfirmRequest(BaseModel):
    """A decision about a call."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": DECISION})

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


class Confirmed(BaseModel):
    """The decision counts."""

    model_config = ConfigDict(json_schema_extra={"example": DECIDED})

    confirmation_id: str
    approved: bool


class Confirmation(BaseModel):
    """A call that waits for a decision."""

    model_config = ConfigDict(json_schema_extra={"example": OPEN})

    confirmation_id: str
    session_id: str
    tool_name: str
    tool_source: str = Field(description="Where the tool comes from: `directory`, `agents`, ….")
    arguments: dict[str, Any]
    call_index: int
    tool_call_id: str
    queue_position: int = Field(description="From 1, among the calls that are asked about.")
    queue_total: int
    asked_at: str
    expires_at: str
    agent_name: str | None = Field(
        default=None, description="Whose call it is; absent where the session's own model calls."
    )
    agent_call_id: str | None = Field(
        default=None, description="Which run of the agent, as in its events; absent likewise."
    )


class ConfirmationList(BaseModel):
    """Every call of the session that waits for a decision, oldest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"confirmations": [OPEN]}})

    confirmations: list[Confirmation]
