"""Reads bodies that carry a whole conversation, without holding up the event loop."""

from __future__ import annotations

from typing import TypeVar

import orjson
from django.http import HttpRequest
from pydantic import BaseModel

from mochi_project.http.errors import PAYLOAD, checked
from mochi_project.http.json import parse_json, take_body, too_many_values
from mochi_project.http.wires import WIRES
from mochi_server.core.aio import in_thread_if
from mochi_server.core.limits import HISTORY_VALUES, REQUEST_VALUES, has_more_values
from mochi_server.errors import InvalidJSON

Body = TypeVar("Body", bound=BaseModel)

LARGE = 65_536
"""Bytes of a body from which on it is read in a thread."""

HISTORIES = frozenset(wire.history for wire in WIRES)


async def read_body(request: HttpRequest, kind: type[Body]) -> Body:
    """Read the body of a request, which then has none.

    Raises:
        InvalidJSON: it is no JSON.
        InvalidRequest: it is nested too deeply, has too many values, or is not what it must be.
    """
    body = take_body(request)
    return await in_thread_if(len(body) >= LARGE, _read, body, kind)


def _read(body: bytes, kind: type[Body]) -> Body:
    try:
        content = parse_json(body, HISTORY_VALUES)
    except orjson.JSONDecodeError as error:
        raise InvalidJSON from error
    if isinstance(content, dict) and has_more_values(body, REQUEST_VALUES):
        others = {name: value for name, value in content.items() if name not in HISTORIES}
        if has_more_values(orjson.dumps(others), REQUEST_VALUES):
            raise too_many_values(REQUEST_VALUES)
    return checked(kind.model_validate, content, *PAYLOAD)
