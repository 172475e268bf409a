"""Answers of ``/tools``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from mochi_server.errors import JSONObject

SHORT: JSONObject = {
    "name": "add_numbers",
    "description": "Add two numbers together.",
    "parameters": {
        "a": {"type": "float", "description": "The first number to add."},
        "b": {"type": "float", "description": "The second number to add."},
    },
}
PROBLEM: JSONObject = {
    "file": "/home/me/data/tools/broken.py",
    "line": 3,
    "reason": "SyntaxError: invalid syntax",
    "tool": None,
    "severity": "warning",
}
LIST: JSONObject = {
    "tools": {"add_numbers": SHORT},
    "groups": {"math": ["add_numbers"]},
    "problems": [PROBLEM],
}
DETAIL: JSONObject = {
    "name": "add_numbers",
    "description": "Add two numbers together.",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "The first number to add."},
            "b": {"type": "number", "description": "The second number to add."},
        },
        "required": ["a", "b"],
    },
    "tool_source": "directory",
    "groups": ["math"],
    "destructive": False,
    "needs_confirmation": {
        "always_confirm": True,
        "never_confirm": False,
        "confirm_destructive": False,
    },
    "sequential": False,
    "timeout": 60.0,
    "is_async": False,
    "source": 'def add_numbers(a: float, b: float) -> str:\n    """Add two numbers. …"""\n',
    "source_file": "/home/me/data/tools/math_tools.py",
    "line": 4,
}
STATS: JSONObject = {
    "statistics": {
        "add_numbers": {
            "count": 12,
            "failures": 1,
            "mean_seconds": 0.002113,
            "p95_seconds": 0.004021,
        }
    },
    "history": [
        {
            "tool_name": "add_numbers",
            "session_id": "a1b2c3d4e5",
            "started_at": "2025-01-15T10:35:00.000000Z",
            "execution_time": 0.001984,
            "success": True,
            "error_message": None,
        }
    ],
}


class ShortParameter(BaseModel):
    """An argument of a tool, for people."""

    type: str = Field(description="As its author wrote it: `float`, `list[str]`.")
    description: str
    choices: list[JsonValue] = Field(default=[], description="Only where it is one of these.")
    default: JsonValue = Field(default=None, description="Only where there is one.")
    required: bool = Field(default=True, description="Only where it is not.")


class ToolLine(BaseModel):
    """A tool in the list."""

    model_config = ConfigDict(json_schema_extra={"example": SHORT})

    name: str
    description: str
    parameters: dict[str, ShortParameter]


class ToolProblem(BaseModel):
    """Why something could not be used."""

    model_config = ConfigDict(json_schema_extra={"example": PROBLEM})

    file: str = Field(description="Where it is; absolute.")
    line: int | None = Field(description="From 1; null when the whole file is meant.")
    reason: str
    tool: str | None = Field(description="The tool that is missing for this reason.")
    severity: Literal["warning", "hint"] = Field(
        description="`hint`: nothing is wrong; functions of the file are left out."
    )


class ToolList(BaseModel):
    """Every tool, every group, and what could not be used."""

    model_config = ConfigDict(json_schema_extra={"example": LIST})

    tools: dict[str, ToolLine]
    groups: dict[str, list[str]]
    problems: list[ToolProblem]


class ToolDetail(BaseModel):
    """Everything about one tool; what only a function of a file has is null elsewhere."""

    model_config = ConfigDict(json_schema_extra={"example": DETAIL})

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema, as the model gets it.")
    tool_source: str = Field(description="`directory`: the folder of tools.")
    groups: list[str]
    destructive: bool | None = Field(description="Null: nobody says, which counts as destructive.")
    needs_confirmation: dict[str, bool] = Field(
        description="By execution policy, whether a person is asked."
    )
    sequential: bool = Field(description="Runs beside no other call of a reply.")
    timeout: float | None = Field(description="Seconds; null for no limit.")
    is_async: bool | None
    source: str | None = Field(description="The text of the function.")
    source_file: str | None
    line: int | None


class ToolStatistics(BaseModel):
    """The executions of one tool since the start of this process."""

    count: int
    failures: int
    mean_seconds: float
    p95_seconds: float = Field(description="Of the latest thousand.")


class ToolExecution(BaseModel):
    """One execution."""

    tool_name: str
    session_id: str
    started_at: str
    execution_time: float = Field(description="Seconds.")
    success: bool
    error_message: str | None


class ToolStats(BaseModel):
    """How tools have run in this process."""

    model_config = ConfigDict(json_schema_extra={"example": STATS})

    statistics: dict[str, ToolStatistics] = Field(description="By tool.")
    history: list[ToolExecution] = Field(description="The last hundred, latest first.")
