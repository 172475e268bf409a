"""What the OpenAPI document says beside the schemas: examples, and the errors of each route."""

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

_EVERYWHERE: tuple[type[MochiError], ...] = (
    Unauthorized,
    OriginNotAllowed,
    HostNotAllowed,
    InternalError,
)
_WITH_BODY: tuple[type[MochiError], ...] = (
    InvalidJSON,
    InvalidRequest,
    PayloadTooLarge,
    RequestTimeout,
    ServerBusy,
)

OF_PROVIDERS: tuple[type[MochiError], ...] = (
    ProviderNotConfigured,
    OllamaUnreachable,
    OllamaError,
    ProviderUnreachable,
    ProviderError,
    ProviderBusy,
)
"""What can go wrong with any provider."""

WHERE_A_MODEL_IS_ASKED: tuple[type[MochiError], ...] = (
    SessionNotFound,
    ModelNotFound,
    SessionBusy,
    ContextOverflow,
    SessionUnreadable,
    *OF_PROVIDERS,
    ShuttingDown,
    StorageError,
)
"""What can go wrong with a session and its model."""

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
    """Collects the fields that a template asks for."""

    def __init__(self) -> None:
        super().__init__()

    def __missing__(self, key: str) -> object:
        self[key] = _SAMPLES[key]
        return self[key]


def example_of(error: type[MochiError]) -> JSONObject:
    """The body of such an error, with sample values."""
    fields = _Samples()
    if error is AgentInvalid:
        fields["reason"] = "coder/SKILL.md:2: description is missing"
    if error is HostNotAllowed:
        fields["host"] = "evil.example"
    message = error.template.format_map(fields)
    return {"error": {"code": error.code, "message": message, "details": dict(fields)}}


def documented(
    *errors: type[MochiError],
    status: int = 200,
    example: Any = None,  # noqa: ANN401 - any JSON
    body: Any = None,  # noqa: ANN401 - any JSON
    parameters: dict[str, Any] | None = None,
    content: Callable[[], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """``openapi_extra`` of an operation.

    ``example`` is its answer with ``status``, ``body`` what to send, ``parameters`` a value for
    each parameter, ``content`` makes the answer's content where it is no JSON: with the document,
    for no start should wait for what only its readers need.
    """
    responses = _error_responses((*errors, *_EVERYWHERE, *(_WITH_BODY if body else ())))
    if content is not None:
        responses[status] = {"description": "OK", "content": content}
    elif example is not None:
        responses[status] = {"content": {"application/json": {"example": example}}}
    extra: dict[str, Any] = {"responses": responses}
    if body is not None:
        extra["requestBody"] = {"content": {"application/json": {"example": body}}}
    if parameters:
        extra["x-parameter-examples"] = parameters
    return extra


def _error_responses(errors: tuple[type[MochiError], ...]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for error in dict.fromkeys(errors):
        entry = found.setdefault(
            error.status,
            {
                "description": "",
                "content": {
                    "application/json": {
                        "schema": reference("Error"),
                        "examples": {},
                    }
                },
            },
        )
        summary = (error.__doc__ or "").strip().splitlines()[0]
        entry["content"]["application/json"]["examples"][error.code] = {
            "summary": summary,
            "value": example_of(error),
        }
        entry["description"] = ", ".join(entry["content"]["application/json"]["examples"])
    return found


def reference(schema: str) -> dict[str, Any]:
    """A reference to a schema of the document by its name."""
    return {"$ref": f"#/components/schemas/{schema}"}


def finish(document: dict[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Put examples and contents in their places, and what all operations share.

    Args:
        document: as django-ninja has made it.
        schemas: those that no operation's body or answer is made of, by name.
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
            examples = operation.pop("x-parameter-examples", {})
            for parameter in operation.get("parameters", []):
                if parameter["name"] in examples:
                    parameter["example"] = examples[parameter["name"]]
            for response in operation["responses"].values():
                if callable(make := response.get("content")):
                    response["content"] = make()
    return document
