"""What the OpenAPI document says beside the schemas: the errors of each route, and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mochi_server.errors import (
    AgentInvalid,
    ContextOverflow,
    HostNotAllowed,
    InternalError,
    InvalidJSON,
    InvalidRequest,
    JSONObject,
    MochiError,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    OriginNotAllowed,
    PayloadTooLarge,
    ProviderBusy,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
    RequestTimeout,
    ServerBusy,
    SessionBusy,
    SessionNotFound,
    SessionUnreadable,
    ShuttingDown,
    StorageError,
    Unauthorized,
)

ERROR_SCHEMA: JSONObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string", "description": "A name that never changes."},
                "message": {"type": "string", "description": "For people."},
                "details": {"type": "object", "description": "The facts of the case."},
            },
        }
    },
}

ErrorTypes = tuple[type[MochiError], ...]

_EVERYWHERE: ErrorTypes = (
    Unauthorized,
    OriginNotAllowed,
    HostNotAllowed,
    InternalError,
)
_WITH_BODY: ErrorTypes = (
    InvalidJSON,
    InvalidRequest,
    PayloadTooLarge,
    RequestTimeout,
    ServerBusy,
)

PROVIDER_ERRORS: ErrorTypes = (
    ProviderNotConfigured,
    OllamaUnreachable,
    OllamaError,
    ProviderUnreachable,
    ProviderError,
    ProviderBusy,
)
"""Errors of any provider."""

MODEL_ERRORS: ErrorTypes = (
    SessionNotFound,
    ModelNotFound,
    SessionBusy,
    ContextOverflow,
    SessionUnreadable,
    *PROVIDER_ERRORS,
    ShuttingDown,
    StorageError,
)
"""Errors of a session and of its model."""

_ERRORS, _STREAM = "x-errors", "x-stream"

_SAMPLES: dict[str, Any] = {
    "session_id": "a1b2c3d4e5",
    "model": "qwen3:14b",
    "filename": "helpful.md",
    "tool": "add_numbers",
    "agent": "coder",
    "confirmation_id": "conf_0123456789abcdef",
    "index": 3,
    "host": "http://localhost:11434",
    "provider": "openai",
    "reason": "No space left on device",
    "limit_mb": 10,
    "seconds": 120,
    "origin": "https://example.com",
    "method": "DELETE",
    "path": "/api/v1/nowhere",
}


class _Samples(dict[str, Any]):
    """Sample values by field; only those that a template has asked for are in it."""

    def __missing__(self, key: str) -> object:
        self[key] = _SAMPLES[key]
        return self[key]


def _example_of_error(error: type[MochiError]) -> JSONObject:
    fields = _Samples()
    if error is AgentInvalid:
        fields["reason"] = "coder/SKILL.md:2: description is missing"
    if error is HostNotAllowed:
        fields["host"] = "evil.example"
    message = error.template.format_map(fields)
    return {"error": {"code": error.code, "message": message, "details": dict(fields)}}


def documented(
    *errors: type[MochiError], stream: Callable[[], JSONObject] | None = None
) -> JSONObject:
    """Return the ``openapi_extra`` of an operation.

    Args:
        errors: those of this route alone.
        stream: makes the ``content`` of an answer that is a stream; called when somebody asks for
            the document, so that no start of a server waits for it.
    """
    return {_ERRORS: errors, _STREAM: stream}  # type: ignore[dict-item] # finish() replaces them


def reference(schema: str) -> dict[str, Any]:
    """Refer to a schema of the document by its name."""
    return {"$ref": f"#/components/schemas/{schema}"}


def finish(document: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Add errors, examples, streams, and what all operations share.

    Args:
        document: The document as django-ninja has made it; it is changed.
        schemas: Schemas by name that no body or response refers to.
    """
    components = document["components"]
    components["schemas"] |= {**schemas, "Error": ERROR_SCHEMA}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for schema in components["schemas"].values():
        # A generator of clients would send a default, or require a key that has one.
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
    for path in document["paths"].values():
        for operation in path.values():
            _finish_operation(operation, components["schemas"])


def _finish_operation(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    errors, stream = operation.pop(_ERRORS, ()), operation.pop(_STREAM, None)
    for parameter in operation["parameters"]:
        if isinstance(parameter.get("examples"), list):  # as JSON Schema has them, not OpenAPI
            parameter["example"] = parameter.pop("examples")[0]
    for response in operation["responses"].values():
        if stream is not None:
            response["content"] = stream()
        elif "content" in response:
            _add_example(response["content"], schemas)
    if body := operation.get("requestBody"):
        _add_example(body["content"], schemas)
        errors = (*errors, *_WITH_BODY)
    operation["responses"] |= _error_responses((*errors, *_EVERYWHERE))


def _error_responses(errors: ErrorTypes) -> dict[int, Any]:
    responses: dict[int, Any] = {}
    for error in dict.fromkeys(errors):
        examples = responses.setdefault(error.status, {})
        examples[error.code] = {
            "summary": (error.__doc__ or "").strip().splitlines()[0],
            "value": _example_of_error(error),
        }
    return {
        status: {
            "description": ", ".join(examples),
            "content": {"application/json": {"schema": reference("Error"), "examples": examples}},
        }
        for status, examples in responses.items()
    }


def _add_example(content: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    media = content["application/json"]
    media["example"] = example_of(media["schema"], schemas)


def example_of(  # noqa: PLR0911 - one for each kind
    schema: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - any JSON
    """Return the example of a JSON Schema, or put one together from the examples of its parts.

    Args:
        schema: every text and number in it has an example; what is kept by name has a ``name``.
        schemas: by name, those that it refers to.
    """
    match schema:
        case (
            {"example": example}
            | {"examples": [example, *_]}
            | {"const": example}
            | {"enum": [example, *_]}
        ):
            return example
        case {"$ref": str() as name}:
            return example_of(schemas[name.rpartition("/")[2]], schemas)
        case {"anyOf": [first, *_]} | {"allOf": [first, *_]}:
            return example_of(first, schemas)
        case {"properties": properties}:
            required = schema.get("required", ())
            return {
                name: example_of(field, schemas)
                for name, field in properties.items()
                if name in required or "examples" in field
            }
        case {"type": "array", "items": items}:
            return [example_of(items, schemas)]
        case {"additionalProperties": {"$ref": _} as named}:
            value = example_of(named, schemas)
            return {value["name"]: value}
        case {"type": "boolean" | "null" as kind}:
            return False if kind == "boolean" else None
    raise LookupError(f"no example of {schema}")
