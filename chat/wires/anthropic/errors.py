"""Errors as Anthropic has them: ``{"type": "error", "error": {"type", "message"}}``."""

from __future__ import annotations

from typing import Any

from mochi_project.http.errors import TEXT_CHARACTERS, shortened
from mochi_server.core.logs import request_id
from mochi_server.errors import ContextOverflow, MochiError

SERVER_ERROR = 500

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_TOO_LONG = "prompt is too long"
"""Clients look for these words to shorten a conversation."""


def error_object(message: str, code: str, status: int) -> dict[str, Any]:
    """Return the object of an error; ``code`` is ours."""
    kind = "api_error" if status >= SERVER_ERROR else "invalid_request_error"
    if code == ContextOverflow.code:
        kind, message = "invalid_request_error", f"{_TOO_LONG}: {message}"
    else:
        kind = _TYPES.get(status, kind)
    return {
        "type": "error",
        "error": {"type": kind, "message": shortened(message, TEXT_CHARACTERS), "code": code},
        "request_id": request_id(),
    }


def error_shape(error: MochiError) -> dict[str, Any]:
    """Return the object of one of our errors."""
    shape = error_object(error.message, error.code, error.status)
    if (error_code := error.details.get("error_code")) is not None:
        shape["error"]["details"] = {"error_code": error_code}
    return shape
