"""The protocol between the server and a tool's process: frames of JSON on a socket.

A frame is four bytes, the length of the rest, and a JSON object in UTF-8. A request is
``{"id", "op", …}`` and an answer ``{"id", "kind", …}``; one request is open at a time. Strings may
hold lone surrogates and numbers may be of any size or NaN, as Python's own ``json`` allows.

Requests: ``load`` (``path``, ``subfolders``, ``reserved``, ``working_dir``) and ``call`` (``name``,
``arguments``). Answers: ``done`` (``value``: the description, or the result as text), ``invalid``
(``text``), ``failed`` (``text``, ``traceback``). Every answer has ``size``: the bytes of memory
that the process has taken since it started. Before the answer of a ``call`` there may be any number
of ``{"id", "kind": "progress", "progress", "total", "message"}``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from ...errors import JSONObject
from ..base import InvalidArguments, Problem, ToolDescription, ToolFailed
from ..loading import FolderDescription

NONSENSE = "the tool's process wrote nonsense to the server"
"""Why a process is killed that answers something else."""
PROGRESS = "progress"
LENGTH_BYTES = 4
MAX_FRAME = 40 * 1024 * 1024
_TOOL = [each.name for each in fields(ToolDescription)]


class BadFrame(ValueError):
    """The text says what is wrong: too long, no JSON, not an object."""


def pack(message: JSONObject) -> bytes:
    """Return the frame of a message, or raise BadFrame."""
    try:
        body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadFrame(f"it is no JSON ({error})") from error
    if len(body) > MAX_FRAME:
        raise BadFrame(f"it is larger than {MAX_FRAME // 2**20} MiB")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def unpack(body: bytes) -> dict[str, Any]:
    """Return the message in a frame's body, or raise BadFrame."""
    try:
        message = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise BadFrame("it is no JSON") from error
    if not isinstance(message, dict):
        raise BadFrame("it is no object")
    return message


def length_of(head: bytes | bytearray) -> int:
    """Return the length of the body from the head of a frame, or raise BadFrame."""
    length = int.from_bytes(head, "big")
    if length > MAX_FRAME:
        raise BadFrame("it is too long")
    return length


def encode_result(result: object) -> JSONObject:
    """Return ``{"kind", "value", "text", "traceback"}`` for a result or an error."""
    kind, text, traceback = "done", "", ""
    value: Any = result
    if isinstance(result, Exception):
        kind = "invalid" if isinstance(result, InvalidArguments) else "failed"
        value, text, traceback = None, str(result), getattr(result, "traceback", "")
    return {"kind": kind, "value": value, "text": text, "traceback": traceback}


def decode_result(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value in an answer; raises InvalidArguments, ToolFailed or BadFrame."""
    match answer:
        case {"kind": "done", "value": value}:
            return value
        case {"kind": "invalid", "text": str(text)}:
            raise InvalidArguments(text)
        case {"kind": "failed", "text": str(text), "traceback": str(traceback)}:
            raise ToolFailed(text, traceback=traceback)
    raise BadFrame("it is no answer")


def encode_description(description: FolderDescription) -> JSONObject:
    return {
        "folder": description.folder,
        "tools": [{name: getattr(tool, name) for name in _TOOL} for tool in description.tools],
        "groups": {name: list(tools) for name, tools in description.groups.items()},
        "problems": [problem.as_json() for problem in description.problems],
    }


def decode_description(value: Any) -> FolderDescription:  # noqa: ANN401 - as the child sent it
    """Return the description that the process sent, or raise BadFrame."""
    try:
        return FolderDescription(
            folder=value["folder"],
            tools=tuple(ToolDescription(**tool) for tool in value["tools"]),
            groups={name: tuple(tools) for name, tools in value["groups"].items()},
            problems=tuple(Problem(**problem) for problem in value["problems"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFrame("it is no description of a folder") from error
