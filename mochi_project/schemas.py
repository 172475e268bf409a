"""Parts of answers that several apps share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Discriminator, Field
from typing_extensions import TypeAliasType

from mochi_server.protocol.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UnknownMessage,
    UserMessage,
)

Message = TypeAliasType(
    "Message",
    Annotated[UserMessage | SystemMessage | AssistantMessage | ToolMessage, Discriminator("role")],
)
"""A message of a known role; the OpenAPI document has it under this name."""

Messages = Annotated[
    list[Message | UnknownMessage],
    Field(description="As they are stored; roles and keys of other writers are passed on."),
]
"""The messages of a session."""


class SessionProblem(BaseModel):
    """A session file that cannot be read."""

    session_id: str
    reason: str
