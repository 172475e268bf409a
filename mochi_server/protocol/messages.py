"""The messages of a conversation, as they are stored and sent.

A pydantic class for each role, its fields in the order of the session file. Unknown keys are kept
(docs/reference/session-file.md).
"""

from __future__ import annotations

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

from ..core.clock import timestamp, utc_now
from ..core.ids import new_message_id
from ..errors import JSONObject


def now() -> str:
    """Return the present time: UTC, microseconds, ``Z``."""
    return timestamp(utc_now())


class ToolCall(BaseModel):
    """A call of a tool by the model."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    arguments: dict[str, JsonValue]
    """If the model wrote no JSON object: its text, under ``input``."""
    problem: str | None = None
    """Why the arguments cannot be read, in words for the model."""
    recovered: bool = False
    """Whether the model wrote it as text."""

    def as_stored(self) -> JSONObject:
        """Return ``{"function": {"name", "arguments"}, "id"}``, as in the session file.

        It has ``"recovered": true`` where the model wrote the call as text.
        """
        function: JSONObject = {"name": self.name, "arguments": self.arguments}
        stored: JSONObject = {"function": function, "id": self.id}
        return stored | {"recovered": True} if self.recovered else stored


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
                    "recovered": {"type": "boolean"},
                },
            },
        },
        {"type": "null"},
    ]
}


_ATTACHMENTS_SCHEMA: JSONObject = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "title": "StoredAttachment",
                "type": "object",
                "required": ["attachment_id", "media_type", "size", "name"],
                "properties": {
                    "attachment_id": {"type": "string"},
                    "media_type": {"type": "string"},
                    "size": {"type": "integer"},
                    "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "server": {"type": "string"},
                    "uri": {"type": "string"},
                },
            },
        },
        {"type": "null"},
    ]
}


class _Stored(BaseModel):
    """A message in a session file: optional keys only where they say something."""

    # Files of old writers lack any other key.
    model_config = ConfigDict(extra="allow", json_schema_extra={"required": ["role"]})

    optional: ClassVar[frozenset[str]] = frozenset()
    """Keys that are left out if they are null and were not in the file."""

    role: str
    content: str | None = ""

    @property
    def text(self) -> str:
        """The content; empty for a missing one."""
        return self.content or ""

    def as_stored(self) -> JSONObject:
        """Return the object in the session file, keys in the file's order."""
        data: dict[str, Any] = self.model_dump(mode="json")
        for key in self.optional - self.model_fields_set:
            if data.get(key) is None:
                data.pop(key, None)
        return data


class UserMessage(_Stored):
    """A message of the user."""

    optional = frozenset({"attachments"})

    role: Literal["user"] = "user"
    content: str | None = ""
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)
    attachments: Annotated[JsonValue, WithJsonSchema(_ATTACHMENTS_SCHEMA)] = None
    """``[{"attachment_id", "media_type", "size", "name"}]``, of resources of MCP servers also
    ``server`` and ``uri``."""


class SystemMessage(_Stored):
    """The system prompt."""

    role: Literal["system"] = "system"
    content: str | None = ""
    source_file: str | None = None
    """Name of the prompt file of the text."""
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)


class AssistantMessage(_Stored):
    """A reply of the model, whole or as far as it came."""

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
    """Data that the provider wants back with the message (signatures)."""


class ToolMessage(_Stored):
    """The result of a call, in words for the model."""

    optional = frozenset({"tool_call_id", "attachments"})

    role: Literal["tool"] = "tool"
    content: str | None = ""
    tool_name: str | None = None
    tool_call_id: str | None = None
    attachments: list[JSONObject] | None = None
    """Files that the tool returned: ``{"attachment_id", "media_type", "size", "name"}``."""
    message_id: str | None = Field(default_factory=new_message_id)
    timestamp: str | None = Field(default_factory=now)


_ROLES = ("user", "system", "assistant", "tool")


class UnknownMessage(_Stored):
    """A message of another program's role: kept, shown, and not sent to models."""

    role: str = Field(json_schema_extra={"not": {"enum": [*_ROLES]}})


def _role(value: object) -> str:
    """Return the tag of the union: the role, or ``unknown``."""
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
