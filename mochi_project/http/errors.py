"""Every error as ``{"error": {"code", "message", "details"}}``, on every route.

docs/reference/errors.md lists the codes.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final, TypeVar

import pydantic
from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from mochi_server.core.problems import NOT_AN_OBJECT, place_of, problem_text
from mochi_server.errors import (
    ContextOverflow,
    InternalError,
    InvalidJSON,
    InvalidRequest,
    JSONObject,
    MochiError,
    NotFound,
    PayloadTooLarge,
)

from .wires import Wire, wire_of

logger = logging.getLogger(__name__)

STREAM_HINT = "for a stream, send this to /chat/stream or /chat/{session_id}/stream"
NAMED_PROBLEMS = 20  # most wrong fields that an answer names; the others are counted
NAME_CHARACTERS = 200  # of the name of a wrong field that an answer repeats
TEXT_CHARACTERS = 2_000  # of a message, and of each text among its details

PAYLOAD: Final = ("body", "payload")
"""The place of what is the whole body of a request."""

ValueT = TypeVar("ValueT")
ErrorShape = Callable[[MochiError], Mapping[str, Any]]


def shape_path(path: str, headers: Iterable[str]) -> str:
    """Return the path by which a request's errors get their form.

    Names of headers are in lower case.
    """
    wire = wire_of(path)
    if wire is not None and wire.shared_with is not None:
        known_by, other = wire.shared_with
        return path if known_by.isdisjoint(headers) else other
    return path


def error_shape(error: MochiError) -> JSONObject:
    """Return the object of an error; long texts in it are cut."""
    details = {
        name: shortened(value, TEXT_CHARACTERS) if isinstance(value, str) else value
        for name, value in error.details.items()
    }
    message = shortened(error.message, TEXT_CHARACTERS)
    return {"error": {"code": error.code, "message": message, "details": details}}


def error_body(error: MochiError, path: str) -> bytes:
    """Return the JSON of an error as clients of this path expect it."""
    return json.dumps(_shape_of(wire_of(path))(error), default=str).encode()


def status_of(error: MochiError, path: str) -> int:
    """Return the status of an error: vendors answer 400 to a body that is not valid or too long."""
    is_invalid = error.status == HTTPStatus.UNPROCESSABLE_ENTITY or isinstance(
        error, ContextOverflow
    )
    return HTTPStatus.BAD_REQUEST if is_invalid and wire_of(path) else error.status


def _shape_of(wire: Wire | None) -> ErrorShape:
    if wire is None or wire.errors_module is None:
        return error_shape
    shape: ErrorShape = import_module(wire.errors_module).error_shape
    return shape


def error_response(error: MochiError, path: str) -> HttpResponse:
    body, status = error_body(error, path), status_of(error, path)
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Content-Length"] = str(len(body))
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    return response


def invalid_request(problems: Sequence[Any]) -> InvalidRequest:
    """Return the 422 for what pydantic found, which can be a million wrong keys."""
    errors: list[Any] = [_problem(problem) for problem in problems[:NAMED_PROBLEMS]]
    first = errors[0]
    message = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidRequest(f"The request is not valid. {message}{more}", details={"errors": errors})


def checked(validate: Callable[[Any], ValueT], value: object, *place: str) -> ValueT:
    """Return a part of a request, which is at this place, as pydantic reads it.

    Raises:
        InvalidRequest: it is not what it must be.
    """
    try:
        return validate(value)
    except pydantic.ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        located = [{**each, "loc": (*place, *each["loc"])} for each in problems]
        raise invalid_request(located) from error


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _problem(problem: Any) -> JSONObject:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return ``{"in": "body", "field": "tool_settings.tools", "message", "type"}``."""
    place, *path = problem["loc"]
    if place == "body":
        path = path[1:]  # the name of our own parameter
    match problem:
        case {"type": "extra_forbidden"} if path == ["stream"]:  # as OpenAI and Ollama have it
            message = f"unknown field; {STREAM_HINT}"
        case {"type": "extra_forbidden"}:
            message = "unknown field"
        case {"type": kind} if kind in NOT_AN_OBJECT:
            message = "Must be a JSON object."
        case {"type": "union_tag_invalid", "ctx": context}:  # else it may name our function
            message = f"{context['tag']!r} is none of {context['expected_tags']}."
        case {"type": "union_tag_not_found", "ctx": context}:
            message = f"The field {context['discriminator']} is missing."
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": r"\S"}}:
            message = "Empty, or only white space."
        case _:
            message = problem_text(problem)
    field = shortened(place_of(path), NAME_CHARACTERS)
    return {"in": str(place), "field": field, "message": message, "type": problem["type"]}


def translate(error: Exception) -> MochiError:
    """Return the named error for whatever a route raised; log what was not foreseen."""
    match error:
        case MochiError():
            return error
        case ValidationError():
            return invalid_request(error.errors)
        case RequestDataTooBig():
            return PayloadTooLarge(limit_mb=settings.DATA_UPLOAD_MAX_MEMORY_SIZE / 1_000_000)
        case HttpError(status_code=400, __context__=InvalidRequest() as cause):
            return cause  # ninja covers up what a parser raises
        case HttpError(status_code=400) | SuspiciousOperation():
            return InvalidJSON()
    logger.error("Unexpected error", exc_info=error)
    return InternalError()


def shape_path_of(request: HttpRequest) -> str:
    """Return the path by which the errors of a request get their form."""
    return shape_path(request.path_info, (name.lower() for name in request.headers))


def _answer(request: HttpRequest, error: Any) -> HttpResponse:  # noqa: ANN401 - ninja's
    response = error_response(translate(error), shape_path_of(request))
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
    for kind in (Exception, HttpError, ValidationError):
        api.add_exception_handler(kind, _answer)


# Django calls these (``handler400`` and so on in urls.py) where no operation is involved.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, exception)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    return error_response(NotFound(path=request.path), request.path_info)


def server_error(request: HttpRequest) -> HttpResponse:
    return error_response(InternalError(), request.path_info)
