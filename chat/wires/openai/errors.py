"""Errors as OpenAI has them: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

from mochi_project.http.errors import TEXT_CHARACTERS, shortened
from mochi_server.errors import MochiError

SERVER_ERROR = 500

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {
    "MODEL_NOT_FOUND": "model_not_found",
    "PRESET_NOT_FOUND": "model_not_found",
    "AGENT_NOT_FOUND": "model_not_found",
    "CONTEXT_OVERFLOW": "context_length_exceeded",
    "UNAUTHORIZED": "invalid_api_key",
}


def code_of(code: str) -> str:
    """Return OpenAI's code of an error where it has one, else ours."""
    return _CODES.get(code, code)


def error_object(
    message: str, code: str, status: int, *, param: str | None = None
) -> dict[str, Any]:
    """Return the object of an error; its code is OpenAI's where it has one, else ours."""
    kind = "api_error" if status >= SERVER_ERROR else "invalid_request_error"
    return {
        "error": {
            "message": shortened(message, TEXT_CHARACTERS),
            "type": _TYPES.get(status, kind),
            "param": param,
            "code": code_of(code),
        }
    }


def error_shape(error: MochiError) -> dict[str, Any]:
    """Return the object of one of our errors."""
    problems = error.details.get("errors")
    first = problems[0] if isinstance(problems, list) and problems else {}
    param = first.get("field") if isinstance(first, dict) else None
    param = param if isinstance(param, str) else None
    return error_object(error.message, error.code, error.status, param=param)
