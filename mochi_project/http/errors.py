"""Every error as ``{"error": {"code", "message", "details"}}``, on every route.

docs/reference/errors.md lists the codes.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import RawPostDataException, UnreadablePostError
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from mochi_server.errors import (
    InternalError,
    InvalidJSON,
    InvalidRequest,
    JSONObject,
    MethodNotAllowed,
    MochiError,
    NotFound,
    PayloadTooLarge,
)

logger = logging.getLogger(__name__)

STREAM_HINT = "for a stream, send this to /chat/stream or /chat/{session_id}/stream"
NAMED_PROBLEMS = 20
"""Most wrong fields that an answer names; the others are counted."""

NAME_CHARACTERS = 200
"""Characters of the name of a wrong field that an answer repeats."""

TEXT_CHARACTERS = 2_000
"""Longest message of an error, and longest text among its details."""


def error_body(error: MochiError) -> bytes:
    """Return the JSON of an error; long texts in it are cut."""
    details = {
        name: shortened(value, TEXT_CHARACTERS) if isinstance(value, str) else value
        for name, value in error.details.items()
    }
    message = shortened(error.message, TEXT_CHARACTERS)
    content = {"error": {"code": error.code, "message": message, "details": details}}
    return json.dumps(content, default=str).encode()


def error_response(error: MochiError) -> HttpResponse:
    """Return the answer for an error."""
    body = error_body(error)
    response = HttpResponse(body, status=error.status, content_type="application/json")
    response["Content-Length"] = str(len(body))
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    return response


def method_not_allowed(method: str, allowed: Iterable[str]) -> HttpResponse:
    """Return 405 with ``Allow``."""
    names = sorted(allowed)
    error = MethodNotAllowed(method=method, details={"allowed": list(names)})
    response = error_response(error)
    response["Allow"] = ", ".join(names)
    return response


def payload_too_large() -> PayloadTooLarge:
    """Return the error for a body over the limit of the settings."""
    from django.conf import settings  # noqa: PLC0415 - the gate imports this module first

    return PayloadTooLarge(limit_mb=settings.MOCHI.max_body_mb)


def invalid_request(problems: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return the 422 for what pydantic found: an entry for each field in ``details.errors``.

    No more than :data:`NAMED_PROBLEMS`: a body can have a million wrong keys.
    """
    errors: list[Any] = [_problem(problem) for problem in problems[:NAMED_PROBLEMS]]
    first = errors[0]
    message = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidRequest(f"The request is not valid. {message}{more}", details={"errors": errors})


def shortened(text: str, length: int = NAME_CHARACTERS) -> str:
    """Return a text of the client, such as a name, as an answer repeats it."""
    return text if len(text) <= length else f"{text[:length]}…"


def _problem(problem: Mapping[str, Any]) -> JSONObject:
    """Return ``{"in": "body", "field": "tool_settings.tools", "message", "type"}``."""
    place, *path = problem["loc"]
    if place == "body":
        path = path[1:]  # the name of our own parameter
    match problem:
        case {"type": "extra_forbidden"} if path == ["stream"]:  # as OpenAI and Ollama have it
            message = f"unknown field; {STREAM_HINT}"
        case {"type": "extra_forbidden"}:
            message = "unknown field"
        case {"type": "model_type"}:  # else it would name our class
            message = "Must be a JSON object."
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": r"\S"}}:
            message = "Empty, or only white space."
        case _:
            message = str(problem["msg"]).removeprefix("Value error, ")
    field = shortened(".".join(str(step) for step in path))
    return {"in": str(place), "field": field, "message": message, "type": problem["type"]}


def translate(error: Exception) -> MochiError:  # noqa: PLR0911 - one for each kind
    """Return the named error for whatever a route raised; log what was not foreseen."""
    match error:
        case MochiError():
            return error
        case ValidationError():
            return invalid_request(error.errors)
        case RequestDataTooBig():
            return payload_too_large()
        case HttpError(status_code=400, __context__=InvalidRequest() as cause):
            return cause  # ninja covers up what a parser raises
        case HttpError(status_code=400) | BadRequest() | SuspiciousOperation():
            return InvalidJSON()
        case UnreadablePostError() | RawPostDataException():
            return InvalidJSON("The request body could not be read.")
        case Http404():
            return NotFound("Nothing is here.")
    logger.error("Unexpected error", exc_info=error)
    return InternalError()


def _answer(request: HttpRequest, error: Any) -> HttpResponse:  # noqa: ANN401 - ninja's type
    named = translate(error)
    if isinstance(named, NotFound):
        named = NotFound(path=request.path)
    response = error_response(named)
    release_frames(error)
    return response


def release_frames(error: BaseException | None) -> None:
    """Clear the frames of an error that was answered.

    Ninja's function that validates has pydantic's error as a local, and that error has the function
    in its traceback: such a cycle would keep the body until the next garbage collection.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def install(api: NinjaAPI) -> None:
    """Answer every exception of an operation by :func:`translate`."""
    for kind in (Exception, Http404, HttpError, ValidationError):
        api.add_exception_handler(kind, _answer)


# Django calls these four (``handler400`` and so on in urls.py) where no operation is involved.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 400, or 413 for a body that is too large."""
    return _answer(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 400: nothing here raises PermissionDenied, but a library may."""
    return _answer(request, BadRequest(str(exception)))


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:  # noqa: ARG001
    """Answer 404."""
    return _answer(request, NotFound(path=request.path))


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer 500; Django logs the trace."""
    return _answer(request, InternalError())
