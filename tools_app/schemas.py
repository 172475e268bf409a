"""Answers of ``/tools``."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Schema
from pydantic import Field, JsonValue

from mochi_project.schemas import (
    FolderProblem,
    ResponseModel,
    SessionId,
    Timestamp,
    ToolName,
    ToolRules,
    ToolText,
)
from mochi_server.tools.base import Tool
from mochi_server.tools.folder.source import FunctionTool


class ShortParameter(ResponseModel):
    """An argument of a tool, for people."""

    type: str = Field(description="As its author wrote it: `float`, `list[str]`.")
    description: str
    choices: list[JsonValue] = Field(default=[], description="Only where it is one of these.")
    default: JsonValue = Field(default=None, description="Only where there is one.")
    required: bool = Field(default=True, description="Only where it is not.")


class ToolLine(Schema):
    """A tool in the list."""

    name: ToolName
    description: ToolText
    parameters: dict[str, ShortParameter] = Field(
        examples=[
            {
                "a": {"type": "float", "description": "The first number to add."},
                "b": {"type": "float", "description": "The second number to add."},
            }
        ]
    )
    destructive: bool | None = Field(
        description="Null where nothing says it, which counts as destructive.", examples=[False]
    )

    @staticmethod
    def resolve_parameters(tool: Tool) -> dict[str, Any]:
        """Return the arguments of a function as it describes them, else as the schema does."""
        if isinstance(tool, FunctionTool):
            return tool.details.short_parameters
        properties = tool.parameters.get("properties")
        schemas = properties.items() if isinstance(properties, dict) else ()
        return {
            name: _short(schema if isinstance(schema, dict) else {}) for name, schema in schemas
        }


def _short(schema: dict[str, Any]) -> dict[str, str]:
    kind = schema.get("type", "any")
    return {
        "type": kind if isinstance(kind, str) else " | ".join(map(str, kind)),
        "description": str(schema.get("description", "")),
    }


class ToolList(ResponseModel):
    """Every tool, every group, and what could not be used."""

    tools: dict[str, ToolLine]
    groups: dict[str, list[str]] = Field(examples=[{"math": ["add_numbers"]}])
    problems: list[FolderProblem]


class McpToolDetail(ResponseModel):
    """What an MCP server says of its tool, which may not be true."""

    server: str = Field(examples=["files"])
    name: str = Field(description="The server's own name for it.", examples=["read_file"])
    title: str | None = Field(examples=["Read File"])
    annotations: dict[str, bool | str] = Field(examples=[{"readOnlyHint": True}])
    trusted: bool = Field(description="Whether the annotations decide who is asked about a call.")
    approval: Literal["unknown", "approved", "changed"] = Field(
        description="Whether a person has approved the tool as it is described now; `changed`: "
        "as it was described before, so the next call is asked about.",
        examples=["approved"],
    )


class ToolDetail(ToolRules):
    """Everything about one tool; what only a function of a file has is null elsewhere."""

    shown_description: str = Field(
        description="The description for people: hidden characters, and those that look like "
        "others, are escapes.",
        examples=["Add two numbers."],
    )
    tool_source: str = Field(
        description="`directory`: the folder of tools; `mcp:{server}`: an MCP server; "
        "`package:{entry point}`: an installed package.",
        examples=["directory"],
    )
    mcp: McpToolDetail | None = Field(
        description="Null unless it is the tool of an MCP server.", examples=[None]
    )
    groups: list[str] = Field(examples=[["math"]])
    needs_confirmation: dict[str, bool] = Field(
        description="By execution policy, whether a person is asked.",
        examples=[{"always_confirm": True, "never_confirm": False, "confirm_destructive": False}],
    )
    is_async: bool | None
    source: str | None = Field(
        description="The text of the function.",
        examples=['def add_numbers(a: float, b: float) -> str:\n    """Add two numbers. …"""\n'],
    )
    source_file: str | None = Field(examples=["/home/me/data/tools/math_tools.py"])
    line: int | None = Field(examples=[4])


class ToolStatistics(ResponseModel):
    """The executions of one tool since the start of this process."""

    count: int
    failures: int
    mean_seconds: float
    p95_seconds: float = Field(description="Of the latest thousand.")


class ToolExecution(ResponseModel):
    """One execution."""

    tool_name: ToolName
    session_id: SessionId
    started_at: Timestamp
    execution_time: float = Field(description="Seconds.", examples=[0.001984])
    success: bool = Field(examples=[True])
    error_message: str | None = Field(examples=[None])


class ToolStats(ResponseModel):
    """How tools have run in this process."""

    statistics: dict[str, ToolStatistics] = Field(
        description="By tool.",
        examples=[
            {
                "add_numbers": {
                    "count": 12,
                    "failures": 1,
                    "mean_seconds": 0.002113,
                    "p95_seconds": 0.004021,
                }
            }
        ],
    )
    history: list[ToolExecution] = Field(description="The last hundred, latest first.")
