"""How JSON is read and sent."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpRequest
from ninja.parser import Parser
from ninja.renderers import BaseRenderer

from mochi_server.core.limits import (
    REQUEST_LEVELS,
    REQUEST_VALUES,
    has_more_values,
    is_too_deep,
    may_be_too_deep,
)
from mochi_server.errors import InvalidRequest


class ORJSONParser(Parser):
    """Strict JSON: no NaN, no halves of surrogate pairs, limited nesting and number of values."""

    def parse_body(self, request: HttpRequest) -> Any:  # noqa: ANN401 - any JSON
        """Parse the body and take it away from the request: a turn can take minutes.

        Raises:
            InvalidRequest: it is nested too deeply, or has too many values.
        """
        return parse_json(take_body(request), REQUEST_VALUES)


def take_body(request: HttpRequest) -> bytes:
    """Return the body of a request, which then has none."""
    body = request.body
    request._stream.close()  # noqa: SLF001 - no public way: tests/stories/test_private_names.py
    request._body = b""  # noqa: SLF001
    return body


def parse_json(body: bytes, most: int) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON of a request.

    ``most``: members of objects and elements of lists that it may have.

    Raises:
        InvalidRequest: it is nested too deeply, or has too many values.
        orjson.JSONDecodeError: it is no JSON.
    """
    if has_more_values(body, most):
        raise too_many_values(most)
    deep = may_be_too_deep(body, REQUEST_LEVELS)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if deep and "depth limit" in str(error):
            raise _too_deep() from error
        raise
    if deep and is_too_deep(content, REQUEST_LEVELS):
        raise _too_deep()
    return content


def too_many_values(most: int) -> InvalidRequest:
    return InvalidRequest(f"The request has more than {most:,} values.", details={"values": most})


def _too_deep() -> InvalidRequest:
    return InvalidRequest(
        f"The request is nested more than {REQUEST_LEVELS} levels deep.",
        details={"levels": REQUEST_LEVELS},
    )


class ORJSONRenderer(BaseRenderer):
    """Answers encoded by orjson, which also takes JSON that is encoded already."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:  # noqa: ANN401, ARG002 - Ninja's signature
        return data if isinstance(data, bytes) else orjson.dumps(data)
