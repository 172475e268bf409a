"""The messages of a conversation, as they are stored and sent.

One pydantic class for each role, its fields in the order of the session file. Keys that we do not
know are kept (docs/reference/session-file.md).
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    TypeAdapter,
    WithJsonSchema,
)

from ..core.ids import new_message_id
from ..errors import JSONObject


def now() -> str:
    """The present instant: UTC, microseconds, ``Z``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class ToolCall(BaseModel):
    """One call of a tool, as the model asked for it."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    arguments: dict[str, JsonValue]
    """Where the model wrote no JSON object: its text, under ``input``."""
    problem: str | None = None
    """Why the call cannot run, in words for the model: its arguments cannot be read."""

    def as_stored(self) -> JSONObject:
        """The shape in the session file: ``{"function": {"name", "arguments"}, "id"}``."""
        return {"function": {"name": self.name, "arguments": self.arguments}, "id": self.id}


_TOOL_CALLS_SCHEMA: JSONObject = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "title": "StoredToolCall",
                "type": "object",
                "required": ["function"],
                "properties": {
                    "function": {
                        "title": "StoredFunction",
                        "type": "object",
                        "required": ["name", "arguments"],
                        "properties": {
                            "name": {"type": "string"},
                            "arguments": {"type": "object", "additionalProperties": True},
                        },
                    },
                    "id": {"type": "string"},
                },
            },
        },
        {"type": "null"},
    ]
}


class _Stored(BaseModel):
    """How a message becomes JSON: optional keys only where they say something."""

    # Files of old writers lack any other key.
    model_config = ConfigDict(extra="allow", json_schema_extra={"required": ["role"]})

    optional: ClassVar[frozenset[str]] = frozenset()
    """Keys left out when they are null and were not in the file."""

    role: str
    content: str | None = ""

    @property
    def text(self) -> str:
        """The content; nothing for a missing one."""
        return self.content or ""

    def as_stored(self) -> JSONObject:
        """The object in the session file, keys in the file's order."""
        data: dict[str, Any] = self.model_dump(mode="json")
        for key in self.optional - self.model_fields_set:
            if data.get(key) is None:
                data.pop(key, None)
        return data


class UserMessage(_Stored):
    """What the person said."""

    role: Literal["user"] = "user"
    content: str | None = ""
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)


class SystemMessage(_Stored):
    """The instructions in front of the conversation."""

    role: Literal["system"] = "system"
    content: str | None = ""
    source_file: str | None = None
    """The prompt file that the text came from."""
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)


class AssistantMessage(_Stored):
    """What the model answered, whole or as far as it came."""

    optional = frozenset({"tool_calls", "thinking", "interrupted", "provider_data"})

    role: Literal["assistant"] = "assistant"
    content: str | None = ""
    model: str | None = None
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)
    eval_count: int | None = None
    prompt_eval_count: int | None = None
    thinking: str | None = None
    tool_calls: Annotated[list[dict[str, Any]] | None, WithJsonSchema(_TOOL_CALLS_SCHEMA)] = None
    """``[{"function": {"name", "arguments"}, "id"}]``; files of old writers have no ids."""
    interrupted: bool | None = None
    """True when the reply was cut off; absent on whole replies."""
    provider_data: dict[str, Any] | None = None
    """What the provider wants echoed back (signatures)."""


class ToolMessage(_Stored):
    """What a tool returned, in words for the model."""

    optional = frozenset({"tool_call_id"})

    role: Literal["tool"] = "tool"
    content: str | None = ""
    tool_name: str | None = None
    tool_call_id: str | None = None
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)


_ROLES = ("user", "system", "assistant", "tool")


class UnknownMessage(_Stored):
    """A role of another writer: kept, shown, and not sent to models."""

    role: str = Field(json_schema_extra={"not": {"enum": [*_ROLES]}})


def _role(value: object) -> str:
    """The tag of the union: the role, or ``unknown``."""
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return role if role in _ROLES else "unknown"


Message: TypeAlias = Annotated[
    Annotated[UserMessage, Tag("user")]
    | Annotated[SystemMessage, Tag("system")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[ToolMessage, Tag("tool")]
    | Annotated[UnknownMessage, Tag("unknown")],
    Discriminator(_role),
]

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
"""Reads one stored message: ``MESSAGE.validate_python(obj)``, ``MESSAGE.validate_json(line)``."""
