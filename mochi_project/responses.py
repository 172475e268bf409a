"""JSON answers, encoded once."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpResponse


def json_response(data: Any, *, status: int = 200) -> HttpResponse:  # noqa: ANN401 - any JSON
    """The data as JSON; pydantic models and dataclasses are not looked into twice."""
    return raw_json(orjson.dumps(data), status=status)


def raw_json(body: bytes, *, status: int = 200) -> HttpResponse:
    """An answer that is JSON already."""
    return HttpResponse(body, status=status, content_type="application/json")


def no_content() -> HttpResponse:
    """204."""
    response = HttpResponse(status=204)
    del response["Content-Type"]
    return response
