"""Types of parameters and results, as people annotate their tools with them."""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any

from pydantic import BaseModel

from mochi_server.tools.functions.python_tool import PythonTool
from mochi_server.tools.schema import ToolSchemaService


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    title: str = "here"
    x: int
    near: list[Point] = []


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


class Options(typing.TypedDict, total=False):
    depth: int
    size: Size


def tool_of(hint: Any) -> PythonTool:
    """Describe a tool whose only parameter ``value`` has this hint."""

    def tool(value): ...

    tool.__doc__ = "Do it."
    tool.__annotations__ = {"value": hint, "return": str}
    return ToolSchemaService().describe(tool, "tool")
