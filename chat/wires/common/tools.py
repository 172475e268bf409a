"""The tools of a request: functions that the client runs, and tools of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mochi_server.errors import JSONObject

from .schemas import ServerTools


class ClientFunction(Protocol):
    """A function of the client, as a vendor's request describes it."""

    def schema_for_model(self) -> JSONObject:
        """Return its schema, as providers take it."""


class NamedTools(Protocol):
    """A ``tool_choice`` that names tools."""

    @property
    def names(self) -> list[str]: ...

    @property
    def must_call(self) -> bool: ...


def calls_of_choice(choice: NamedTools | str | None) -> tuple[list[str] | None, bool]:
    """Return which tools the model may call, None for all, and whether it must call one."""
    if choice is None or isinstance(choice, str):
        return [] if choice == "none" else None, choice == "required"
    return choice.names, choice.must_call


def function_schema(
    name: str, description: str | None, parameters: JSONObject | None
) -> JSONObject:
    """Return the schema of a function, as providers take it."""
    function: JSONObject = {
        "name": name,
        "description": description or "",
        "parameters": parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}


def offered(
    tools: Sequence[ClientFunction | ServerTools] | None,
) -> tuple[list[JSONObject], list[str] | None]:
    """Return the schemas of the client's functions, and the names of the server's tools."""
    functions = [tool for tool in tools or () if not isinstance(tool, ServerTools)]
    servers = [tool for tool in tools or () if isinstance(tool, ServerTools)]
    names = [name for tool in servers for name in tool.names] if servers else None
    return [tool.schema_for_model() for tool in functions], names
