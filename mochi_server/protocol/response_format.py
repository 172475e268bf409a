"""The form that a reply must have: JSON that fits a schema, or any JSON object."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, TypeAdapter

from ..errors import JSONObject

MAX_DESCRIPTION: Final = 4_096
"""Characters of the description of a schema."""

_EXAMPLE: JSONObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


class _Format(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def as_stored(self) -> JSONObject:
        """Return the format as a request has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class ReplySchema(_Format):
    """A JSON schema with a name."""

    name: str = Field(
        default="reply", pattern=r"^[a-zA-Z0-9_-]{1,64}$", description="For services that want one."
    )
    description: str | None = Field(
        default=None, max_length=MAX_DESCRIPTION, description="For services that take one."
    )
    content: dict[str, JsonValue] = Field(
        alias="schema",
        description="JSON Schema, 2020-12 where `$schema` names no other draft.",
        examples=[_EXAMPLE],
    )
    strict: StrictBool | None = Field(
        default=None, description="For services that know it. The reply is checked in any case."
    )


class JsonSchemaFormat(_Format):
    """The reply is JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: ReplySchema

    @property
    def schema_of_reply(self) -> dict[str, JsonValue]:
        """The JSON schema that the reply must fit."""
        return self.json_schema.content

    @classmethod
    def of(cls, schema: dict[str, Any]) -> JsonSchemaFormat:
        """Return the format of replies that fit a JSON schema."""
        return cls(type="json_schema", json_schema=ReplySchema(schema=schema))


class JsonObjectFormat(_Format):
    """The reply is any JSON object."""

    schema_of_reply: ClassVar[dict[str, JsonValue]] = {"type": "object"}

    type: Literal["json_object"]


ResponseFormat: TypeAlias = Annotated[
    JsonSchemaFormat | JsonObjectFormat, Field(discriminator="type")
]

RESPONSE_FORMAT: Final[TypeAdapter[ResponseFormat]] = TypeAdapter(ResponseFormat)
"""Reads what a request has: ``RESPONSE_FORMAT.validate_python(value)``."""
