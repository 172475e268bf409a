"""Tools that clients run by themselves, and whose schemas Anthropic has published.

Requests name them by a type with a date, and do not describe them.
"""

from __future__ import annotations

from mochi_server.errors import JSONObject


def _text(description: str) -> JSONObject:
    return {"type": "string", "description": description}


def _command(*names: str) -> JSONObject:
    return {"type": "string", "enum": [*names], "description": "What to do."}


_BASH: JSONObject = {
    "description": "Run commands in a bash shell that is kept between calls.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": _text("The command to run. Required unless the shell is restarted."),
            "restart": {"type": "boolean", "description": "Whether to restart the shell."},
        },
    },
}

_LINES: JSONObject = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "Of `view`: the first and the last line to show, from 1; the last may be -1.",
}
_CHANGES: JSONObject = {
    "file_text": _text("Of `create`: the content of the file."),
    "old_str": _text("Of `str_replace`: the text to replace, which is in the file once."),
    "new_str": _text("Of `str_replace`: what takes its place."),
    "insert_line": {
        "type": "integer",
        "description": "Of `insert`: the line after which to insert; 0 is the beginning.",
    },
    "insert_text": _text("Of `insert`: the text to insert."),
    "view_range": _LINES,
}


def _editor(*more: str) -> JSONObject:
    return {
        "description": "View, create and edit text files.",
        "parameters": {
            "type": "object",
            "properties": {
                "command": _command("view", "create", "str_replace", "insert", *more),
                "path": _text("Absolute path of a file or a directory."),
                **_CHANGES,
            },
            "required": ["command", "path"],
        },
    }


_MEMORY: JSONObject = {
    "description": "Keep notes for later conversations in files below `/memories`. "
    "View that directory before anything else.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": _command("view", "create", "str_replace", "insert", "delete", "rename"),
            "path": _text("Path below `/memories`, of all commands but `rename`."),
            **_CHANGES,
            "old_path": _text("Of `rename`: the present path."),
            "new_path": _text("Of `rename`: the new path."),
        },
        "required": ["command"],
    },
}

VENDOR_TOOLS: dict[str, JSONObject] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _editor("undo_edit"),
    "text_editor_20250124": _editor("undo_edit"),
    "text_editor_20250429": _editor(),
    "text_editor_20250728": _editor(),
    "memory_20250818": _MEMORY,
}
"""Descriptions and parameters of functions by the types of the tools."""
