"""The OpenAPI document, as far as Ninja does not make it, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from http import HTTPStatus
from pathlib import Path
from string import Formatter
from typing import Any

import ninja
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from mochi_server import errors
from mochi_server.core.aio import in_thread
from mochi_server.errors import JSONObject, MochiError

from .http.errors import not_found

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
    errors.Unauthorized,
    errors.Forbidden,
    errors.OriginNotAllowed,
    errors.HostNotAllowed,
    errors.StorageUnavailable,
    errors.InternalError,
)
_WITH_BODY: ErrorTypes = (
    errors.InvalidJSON,
    errors.InvalidRequest,
    errors.PayloadTooLarge,
    errors.RequestTimeout,
    errors.ServerBusy,
)

PROVIDER_ERRORS: ErrorTypes = (
    errors.ProviderNotConfigured,
    errors.OllamaUnreachable,
    errors.OllamaError,
    errors.ProviderUnreachable,
    errors.ProviderError,
    errors.ProviderBusy,
)
"""Errors of any provider."""

STORE_ERRORS: ErrorTypes = (errors.ConfirmationUnavailable, errors.ConfirmationNotStored)
"""Errors of the store of confirmations."""

NAME_ERRORS: ErrorTypes = (
    errors.ModelNotFound,
    errors.PresetNotFound,
    errors.PresetInvalid,
    errors.AgentNotFound,
    errors.AgentInvalid,
)
"""Errors of the name of a model, which may be that of a preset or an agent."""

MODEL_ERRORS: ErrorTypes = (
    errors.SessionNotFound,
    errors.ModelNotFound,
    errors.SessionBusy,
    errors.ContextOverflow,
    errors.SessionUnreadable,
    *PROVIDER_ERRORS,
    errors.ShuttingDown,
    errors.StorageError,
)
"""Errors of a session and of its model."""

_ERRORS, _STREAM = "x-errors", "x-stream"

_SAMPLES: dict[str, Any] = {
    "session_id": "a1b2c3d4e5",
    "run_id": "run_0123456789abcdef",
    "model": "qwen3:14b",
    "filename": "helpful.md",
    "file": "src/main.py",
    "field": "response_format.json_schema.schema.properties.city.type",
    "attachment_id": "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
    "tool": "add_numbers",
    "agent": "coder",
    "preset": "brief",
    "server": "time",
    "confirmation_id": "conf_0123456789abcdef",
    "rule_id": "rule_0123456789abcdef",
    "message_id": "f1e2d3c4b5",
    "index": 3,
    "host": "http://localhost:11434",
    "provider": "openai",
    "right": "tools",
    "reason": "No space left on device",
    "name": "intro.md",
    "media_type": "image/png",
    "limit_bytes": 1_000_000,
    "uri": "docs://intro",
    "limit_mb": 10,
    "seconds": 120,
    "origin": "https://example.com",
    "method": "DELETE",
    "path": "/api/v1/nowhere",
}


_OTHER_SAMPLES: dict[type[MochiError], dict[str, Any]] = {
    errors.AgentInvalid: {"reason": "coder/SKILL.md:2: description is missing"},
    errors.PresetInvalid: {"reason": "brief.md:2: model is missing"},
    errors.CannotImport: {
        "program": "ChatGPT",
        "place": "/3/mapping",
        "reason": "it is not an object",
    },
    errors.McpServerFailed: {"reason": "it took longer than 60 s"},
    errors.McpResourceNotFound: {"reason": "unknown resource"},
    errors.PromptArgumentsInvalid: {"filename": "travel__guide", "reason": "it needs 'city'"},
    errors.McpServerInvalid: {"reason": "a server of the type 'stdio' needs 'command'"},
    errors.McpConfigUnavailable: {"reason": "mcp.json: Permission denied"},
    errors.ResponseFormatInvalid: {"reason": "'strin' is not valid under any of the given schemas"},
    errors.ResponseFormatNotMet: {"reason": "$.people: 'many' is not of type 'integer'"},
    errors.SpaceUsedUp: {
        "what": "workspaces",
        "limit_mb": 20_000,
        "setting": "MOCHI_MAX_WORKSPACES_MB",
    },
    errors.HostNotAllowed: {"host": "evil.example"},
    errors.WorkspaceFileRefused: {"file": "../secret", "reason": "It leads out of the folder"},
}


def _example_of_error(error: type[MochiError]) -> JSONObject:
    samples = _SAMPLES | _OTHER_SAMPLES.get(error, {})
    fields = [field for _, field, _, _ in Formatter().parse(error.template) if field]
    details = {field: samples[field] for field in fields}
    message = error.template.format(**details)
    return {"error": {"code": error.code, "message": message, "details": details}}


def documented(
    *kinds: type[MochiError], stream: Callable[[], JSONObject] | None = None
) -> JSONObject:
    """Return the ``openapi_extra`` of an operation with these errors of its own.

    ``stream`` makes the ``content`` of an answer that is a stream; it is called when somebody asks
    for the document, so that no start of a server waits for it.
    """
    return {_ERRORS: kinds, _STREAM: stream}  # type: ignore[dict-item] # complete() replaces them


def reference(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


def complete(document: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Add errors, examples, streams, and ``schemas``, to which no body or response refers."""
    components = document["components"]
    components["schemas"] |= {**schemas, "Error": ERROR_SCHEMA}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for schema in components["schemas"].values():
        # A generator of clients would send a default, or require a key that has one.
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
    for path in document["paths"].values():
        for operation in path.values():
            _complete_operation(operation, components["schemas"])


def _complete_operation(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    kinds, stream = operation.pop(_ERRORS, ()), operation.pop(_STREAM, None)
    for parameter in operation["parameters"]:
        if isinstance(parameter.get("examples"), list):  # as JSON Schema has them, not OpenAPI
            parameter["example"] = parameter.pop("examples")[0]
    for status, response in operation["responses"].items():
        if stream is not None and int(status) == HTTPStatus.OK:
            response["content"] = stream()
        elif "content" in response:
            _add_example(response["content"], schemas)
    if body := operation.get("requestBody"):
        _add_example(body["content"], schemas)
        if "application/json" in body["content"]:
            kinds = (*kinds, *_WITH_BODY)
    operation["responses"] |= _error_responses((*kinds, *_EVERYWHERE))


def _error_responses(kinds: ErrorTypes) -> dict[int, Any]:
    responses: dict[int, Any] = {}
    for error in dict.fromkeys(kinds):
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
    if (media := content.get("application/json")) is not None:
        media["example"] = example_of(media["schema"], schemas)


def example_of(  # noqa: PLR0911 - one for each kind
    schema: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - any JSON
    """Return the example of a JSON Schema, or put one together from the examples of its parts.

    Every text and number in it has an example; what is kept by name has a ``name``.
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


FOLDER = Path(ninja.__file__).parent / "static" / "ninja"

ASSETS = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui-init.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
    "favicon.png": "image/png",
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}docs/swagger-ui.css">
<link rel="icon" href="{up}docs/favicon.svg" type="image/svg+xml">
</head>
<body data-csrf-token="" data-api-csrf="">
<script type="application/json" id="swagger-settings">{settings}</script>
<div id="swagger-ui"></div>
<script src="{up}docs/swagger-ui-bundle.js"></script>
<script src="{up}docs/swagger-ui-init.js"></script>
</body>
</html>
"""


NOT_FRAMED = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
"""No other site may show the page in a frame: its buttons send requests."""


class OfflineSwagger(DocsBase):
    """Swagger UI, loaded from this server."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: object) -> HttpResponse:  # noqa: ARG002
        """Render the page; its links work behind any prefix and with slashes at the end."""
        up = "../" * (len(request.path) - len(request.path.rstrip("/")))
        settings = {"url": f"{up}openapi.json", "layout": "BaseLayout", "deepLinking": True}
        return HttpResponse(
            PAGE.format(title=escape(api.title), up=up, settings=json.dumps(settings)),
            headers=NOT_FRAMED,
        )


async def asset(request: HttpRequest, name: str) -> HttpResponseBase:
    if name not in ASSETS:
        return not_found(request)
    content = await in_thread((FOLDER / name).read_bytes)
    headers = {"Cache-Control": "public, max-age=86400"}
    return HttpResponse(content, content_type=ASSETS[name], headers=headers)
