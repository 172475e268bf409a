"""Whom and what Ollama refuses, in its words."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from .answers import BARE_JSON, TEXT, Body, FakeResponse
from .fields import body_of, check_fields, check_format, check_options, duration_of
from .models import FakeModel, FakeModels

VERSION: Final = "0.33.0"
"""Of the Ollama that is described here."""

ROUTES: Final = {
    "/": ("GET", "HEAD"),
    "/api/version": ("GET", "HEAD"),
    "/api/tags": ("GET", "HEAD"),
    "/api/ps": ("GET",),
    "/api/show": ("POST",),
    "/api/chat": ("POST",),
    "/api/embed": ("POST",),
}

SMALLEST_WINDOW: Final = 4

_LOCAL_NAMES: Final = (".localhost", ".local", ".internal")
_LOCAL_ORIGIN: Final = re.compile(
    r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0)(:.*)?"
    r"|(app|file|tauri|vscode-webview|vscode-file)://.*"
    r"|(chrome|moz|safari|ms-browser)-extension://.*"
)
_NAME: Final = re.compile(r"([\w.:-]+/)?([\w-][\w.-]*/)?[\w][\w.-]*(:[\w][\w.-]*)?", re.ASCII)


def check_host(host: str) -> None:
    """Refuse a ``Host`` that is not of this machine; only where Ollama listens on loopback.

    Raises:
        FakeResponse: 403 without a body.
    """
    name = host.lower()
    if not name.endswith("]"):
        name, colon, port = name.rpartition(":")
        name = name if colon and port.isdigit() else host.lower()
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        known = ("", "localhost", socket.gethostname().lower())
        local = name in known or name.endswith(_LOCAL_NAMES)
    else:
        local = address.is_loopback or address.is_private or address.is_unspecified
    if not local:
        raise FakeResponse(403, b"")


def may_come_from(origin: str, host: str) -> bool:
    """Whether a page of that origin may ask."""
    own = (f"http://{host}", f"https://{host}")
    return origin in own or _LOCAL_ORIGIN.fullmatch(origin) is not None


def check_origin(origin: str | None, host: str) -> None:
    """Refuse pages of other sites.

    Raises:
        FakeResponse: 403 without a body.
    """
    if origin and not may_come_from(origin, host):
        raise FakeResponse(403, b"")


def check_route(method: str, path: str) -> None:
    """Refuse what has no handler.

    Raises:
        FakeResponse: 404 for the path, 405 for the method.
    """
    if path not in ROUTES:
        raise FakeResponse(404, b"404 page not found", TEXT)
    if method not in ROUTES[path]:
        raise FakeResponse(405, b"405 method not allowed", TEXT)


def chat_of(raw: bytes, models: FakeModels) -> tuple[Body, FakeModel]:
    """A request to ``/api/chat``, and the model that it is for.

    Raises:
        FakeResponse: it is no such request, or nothing that this model can do.
    """
    body = body_of(raw)
    check_fields(body)
    model = _model_of(body, models)
    _check_abilities(body, model)
    check_options(body.get("options") or {})
    check_format(body.get("format"))
    return body, model


def shown_model(raw: bytes, models: FakeModels) -> FakeModel:
    """The model that a request to ``/api/show`` is for; refusals name it with its tag.

    Raises:
        FakeResponse: it names none, or there is none of that name.
    """
    return _model_of(body_of(raw), models, FakeModels.full)


def _model_of(body: Body, models: FakeModels, told: Callable[[str], str] = str) -> FakeModel:
    name = body.get("model") or body.get("name")
    if not name:
        raise FakeResponse(400, "model is required")
    model = models.named(str(name))
    if model is None:
        missing = FakeResponse(404, f"model '{told(name)}' not found")
        raise missing if is_name(name) else FakeResponse(400, "invalid model name")
    return model


def is_name(name: object) -> bool:
    """Whether a model may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def named_model(name: str, models: FakeModels) -> FakeModel:
    """The model of that name, where a name that none can have is just missing.

    Raises:
        FakeResponse: there is none.
    """
    model = models.named(name) if is_name(name) else None
    if model is None:
        raise FakeResponse(404, f"model '{name}' not found")
    return model


def _check_abilities(body: Body, model: FakeModel) -> None:
    name = body["model"]
    if body.get("messages"):
        if "completion" not in model.capabilities:
            raise FakeResponse(400, f'"{name}" does not support chat')
        if body.get("tools") and "tools" not in model.capabilities:
            raise FakeResponse(
                400, f"registry.ollama.ai/library/{model.name} does not support tools"
            )
    check_thinking(body, model)


def check_thinking(body: Body, model: FakeModel) -> None:
    """Refuse thinking where a model cannot.

    Raises:
        FakeResponse: it cannot, and is asked to.
    """
    if body.get("think") and "thinking" not in model.capabilities:
        raise FakeResponse(400, f'"{body["model"]}" does not support thinking')


def unloads(body: Body) -> bool:
    """Whether the model is to be gone at once."""
    return duration_of(body.get("keep_alive")) == 0


def window_of(body: Body, model: FakeModel) -> int:
    """The context window that a request wants, in tokens."""
    wanted = int((body.get("options") or {}).get("num_ctx") or model.num_ctx or model.window)
    return min(max(wanted, SMALLEST_WINDOW), model.context_length or wanted)


def limit_of(body: Body) -> int | None:
    """How many tokens the reply may have; None for as many as it likes."""
    limit = (body.get("options") or {}).get("num_predict")
    return None if limit is None or limit < 0 else int(limit)


def check_fits(body: Body, tokens: int, window: int) -> None:
    """Refuse a prompt that does not fit and must not be cut.

    Raises:
        FakeResponse: with the numbers, in the words of the process that runs the model.
    """
    if body.get("truncate") is not False or tokens <= window:
        return
    text = (
        '{"error":{"code":400,"message":"request (%d tokens) exceeds the available context size '
        '(%d tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%d,'
        '"n_ctx":%d}}'
    )
    raise FakeResponse(400, text % (tokens, window, tokens, window), BARE_JSON)
