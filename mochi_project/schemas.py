"""What the schemas of several apps are made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from ninja import Query
from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeAliasType

from mochi_server.protocol.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UnknownMessage,
    UserMessage,
)
from mochi_server.tools.mcp.prompt_descriptions import MAX_ARGUMENTS


class ResponseModel(BaseModel):
    """An answer or a part of one; Ninja reads it from a dict, or from the attributes of an object.

    Only what is declared here is sent, so the OpenAPI document cannot differ from the answers.
    """

    model_config = ConfigDict(from_attributes=True)


class EncodedAs:
    """Annotation of JSON that is encoded already, which names the type that it describes.

    The annotated type is ``bytes`` for a whole answer, and ``orjson.Fragment`` for a field. The
    JSON is sent as it is: to parse, check and encode thousands of messages or sessions again would
    cost more than everything else.
    """

    def __init__(self, described: Any) -> None:  # noqa: ANN401 - any type
        self._described = described

    def __get_pydantic_core_schema__(
        self, source: type, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Accept the encoded JSON alone; the JSON Schema is that of the described type."""
        return core_schema.json_or_python_schema(
            json_schema=handler.generate_schema(self._described),
            python_schema=core_schema.is_instance_schema(source),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda json: json),
        )


SessionId = Annotated[str, Field(examples=["a1b2c3d4e5"])]
SessionModel = Annotated[str, Field(examples=["qwen3:14b"])]
Timestamp = Annotated[str, Field(examples=["2026-01-15T10:35:00.000000Z"])]
RunId = Annotated[str, Field(examples=["run_0123456789abcdef"])]
ToolName = Annotated[str, Field(examples=["add_numbers"])]
ToolText = Annotated[str, Field(examples=["Add two numbers together."])]
PromptArguments = Annotated[
    dict[str, str],
    Field(
        max_length=MAX_ARGUMENTS,
        description="Arguments of a prompt of an MCP server, by name.",
        examples=[{"city": "Paris"}],
    ),
]
JSONSchema = Annotated[
    dict[str, Any],
    Field(
        description="JSON Schema, as the model gets it.",
        examples=[
            {
                "type": "object",
                "properties": {
                    "a": {"type": "number", "description": "The first number to add."},
                    "b": {"type": "number", "description": "The second number to add."},
                },
                "required": ["a", "b"],
            }
        ],
    ),
]

Message = TypeAliasType(
    "Message",
    Annotated[UserMessage | SystemMessage | AssistantMessage | ToolMessage, Discriminator("role")],
)
"""A message of a known role; the OpenAPI document has it under this name."""

Messages = Annotated[
    orjson.Fragment,
    EncodedAs(list[Message | UnknownMessage]),
    Field(
        description="As they are stored; roles and keys of other writers are passed on.",
        examples=[
            [
                {
                    "role": "user",
                    "content": "Hello",
                    "message_id": "0a1b2c3d4e",
                    "timestamp": "2026-01-15T10:34:00.000000Z",
                },
                {
                    "role": "assistant",
                    "content": "Hi!",
                    "model": "qwen3:14b",
                    "message_id": "f1e2d3c4b5",
                    "timestamp": "2026-01-15T10:35:00.000000Z",
                    "eval_count": 12,
                    "prompt_eval_count": 45,
                },
            ]
        ],
    ),
]

Limit = Annotated[int | None, Query(ge=1, le=100_000, example=50)]
Cursor = Annotated[
    str | None, Query(max_length=512, description="`next_cursor` of the page before.")
]
NextCursor = Annotated[str | None, Field(examples=[None])]


class SessionKeys(ResponseModel):
    """The keys that a session has in every answer."""

    session_id: SessionId
    model: SessionModel
    created_at: Timestamp
    updated_at: Timestamp
    message_count: int = Field(examples=[2])


class SessionProblem(ResponseModel):
    """A session file that cannot be read."""

    session_id: str = Field(examples=["notes"])
    reason: str = Field(examples=["not valid JSON (…)"])


class FolderProblem(ResponseModel):
    """Why something in a folder of tools or of agents cannot be used."""

    file: str = Field(
        description="Where it is; absolute.", examples=["/home/me/data/tools/broken.py"]
    )
    line: int | None = Field(description="From 1; null when the whole file is meant.", examples=[3])
    reason: str = Field(examples=["SyntaxError: invalid syntax"])
    tool: str | None = Field(
        description="The tool that is missing for this reason.", examples=[None]
    )
    severity: Literal["warning", "hint"] = Field(
        description="`hint`: nothing is wrong; functions of the file are left out."
    )


class ToolRules(ResponseModel):
    """What a model is told about a tool, and how the tool runs."""

    name: ToolName
    description: ToolText
    parameters: JSONSchema
    destructive: bool | None = Field(
        description="Null: nobody says, which counts as destructive.", examples=[False]
    )
    sequential: bool = Field(description="Runs beside no other call of a reply.")
    timeout: float | None = Field(description="Seconds; null for no limit.", examples=[60.0])
