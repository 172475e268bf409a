"""Replies in which models have written calls as text, and the tools that they could call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "text_calls"
SHAPES = sorted(path.stem for path in FOLDER.glob("*.json"))


def _tool(name: str, required: dict[str, str], **optional: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in (required | optional).items()}
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return {
        "type": "function",
        "function": {"name": name, "description": "", "parameters": parameters},
    }


TOOLS = [
    _tool("convert_units", {"value": "number", "from_unit": "string", "to_unit": "string"}),
    _tool("get_weather", {"city": "string"}, days="integer"),
    _tool("write_file", {"path": "string", "content": "string"}),
    _tool("delete_file", {"path": "string"}),
    _tool("files__list_folder", {"path": "string"}),
    _tool("list_notes", {}),
]


def shape(name: str) -> tuple[str, str, list[tuple[str, Any]]]:
    """The text of a reply, what of it is shown, and the calls that it has."""
    data = json.loads((FOLDER / f"{name}.json").read_text())
    return (
        data["text"],
        data["shown"],
        [(each["name"], each["arguments"]) for each in data["calls"]],
    )
