"""A stand-in for Ollama: its wire, without a model, for other people's clients."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import orjson
from aiohttp import web

from ..completions import ModelInfo
from .beats import Beat, Cut, first_sound, paced
from .models import CONTEXT, listed_models, model_info
from .ollama_words import CREATED, OllamaWords, asked_by, encoded, joined
from .reply import composed
from .script import BadScript

VERSION: Final = "0.33.0"
"""Of the Ollama whose answers these are like."""

PORT: Final = 11434
"""Ollama's own."""

DEFAULT_WINDOW: Final = 4096
THINK: Final = (True, False, "low", "medium", "high", "max")
MOST_BYTES: Final = 64 * 2**20
DIGEST: Final = "0" * 64

Body = dict[str, Any]


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FakeOllama:
    """The routes that a chat needs: ``/``, version, tags, ps, show, chat."""

    def __init__(
        self, *, words_per_second: float = 50, cancel_after_words: int | None = None
    ) -> None:
        """Open nothing.

        Args:
            words_per_second: pace of the replies; 0 for none.
            cancel_after_words: where every reply is cut.
        """
        self._pace = words_per_second
        self._cancel = cancel_after_words
        self._loaded: dict[str, int] = {}
        """Context window of each model that has been used."""

    def application(self) -> web.Application:
        """An application to serve."""
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[_errors])
        app.router.add_get("/", _root)
        app.router.add_get("/api/version", _version)
        app.router.add_get("/api/tags", _tags)
        app.router.add_get("/api/ps", self._ps)
        app.router.add_post("/api/show", _show)
        app.router.add_post("/api/chat", self._chat)
        return app

    async def _ps(self, request: web.Request) -> web.Response:  # noqa: ARG002 - a handler
        models = [
            {**_summary(name), "expires_at": CREATED, "size_vram": 0, "context_length": window}
            for name, window in self._loaded.items()
        ]
        return _json({"models": models})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        model = _model(body)
        thinks = _check(body, model)
        options = body.get("options") or {}
        self._loaded[_full_name(model)] = options.get("num_ctx") or DEFAULT_WINDOW
        if not body.get("messages"):
            return _json(self._load(body, model))
        try:
            beats = await composed(asked_by(body), self._cancel, size=request.content_length or 0)
        except BadScript as problem:
            raise Refused(400, str(problem)) from problem
        words = OllamaWords(model, thinks=thinks)
        async with aclosing(paced(beats, self._pace)) as said:
            first = await first_sound(said)
            if isinstance(first, Cut) and first.failure is not None:
                raise Refused(first.failure.status, first.failure.message)
            if body.get("stream", True):
                return await _stream(request, first, said, words)
            return await _whole(request, first, said, words)

    def _load(self, body: Body, model: str) -> Body:
        reason = "load"
        if body.get("keep_alive") == 0:
            reason = "unload"
            self._loaded.pop(_full_name(model), None)
        message = {"role": "assistant", "content": ""}
        return {
            "model": model,
            "created_at": CREATED,
            "message": message,
            "done": True,
            "done_reason": reason,
        }


async def _stream(
    request: web.Request, first: Beat, rest: AsyncGenerator[Beat, None], words: OllamaWords
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    if _hangs_up(request, first):
        return response
    await response.prepare(request)
    async for beat in _from(first, rest):
        if _hangs_up(request, beat):
            break
        for line in words.say(beat):
            await response.write(encoded(line))
            if "error" in line:
                return response
    return response


async def _whole(
    request: web.Request, first: Beat, rest: AsyncGenerator[Beat, None], words: OllamaWords
) -> web.Response:
    lines: list[Body] = []
    async for beat in _from(first, rest):
        if isinstance(beat, Cut) and beat.kind != "error":
            _hangs_up(request, Cut(kind="disconnect"))  # half an answer in one piece is none
            break
        lines += words.say(beat)
        if lines and "error" in lines[-1]:
            raise Refused(500, lines[-1]["error"])
    return _json(joined(lines) if lines else {})


async def _from(first: Beat, rest: AsyncGenerator[Beat, None]) -> AsyncGenerator[Beat, None]:
    yield first
    async for beat in rest:
        yield beat


def _hangs_up(request: web.Request, beat: Beat) -> bool:
    """Break the connection where the beat says so."""
    if not (isinstance(beat, Cut) and beat.kind == "disconnect"):
        return False
    if request.transport is not None:
        request.transport.abort()
    return True


async def _root(request: web.Request) -> web.Response:  # noqa: ARG001 - a handler
    return web.Response(text="Ollama is running")


async def _version(request: web.Request) -> web.Response:  # noqa: ARG001 - a handler
    return _json({"version": VERSION})


async def _tags(request: web.Request) -> web.Response:  # noqa: ARG001 - a handler
    return _json({"models": [_summary(_full_name(model.name)) for model in listed_models()]})


async def _show(request: web.Request) -> web.Response:
    name = _model(await _body(request))
    info = _info(name)
    return _json(
        {
            "template": "{{ .Prompt }}",
            "details": _details(name),
            "model_info": {
                "general.architecture": "lorem",
                "lorem.context_length": info.context_length or CONTEXT,
            },
            "capabilities": info.capabilities,
            "modified_at": CREATED,
        }
    )


def _full_name(name: str) -> str:
    """The name with the tag that Ollama takes where none is given."""
    return name if ":" in name else f"{name}:latest"


def _info(name: str) -> ModelInfo:
    return model_info(name.removesuffix(":latest"))


def _summary(name: str) -> Body:
    return {
        "name": name,
        "model": name,
        "modified_at": CREATED,
        "size": 1_000_000,
        "digest": DIGEST,
        "details": _details(name),
        "capabilities": _info(name).capabilities,
    }


def _details(name: str) -> Body:
    info = _info(name)
    return {
        "parent_model": "",
        "format": info.format,
        "family": info.family,
        "families": [info.family],
        "parameter_size": info.parameter_size,
        "quantization_level": info.quantization_level,
        "context_length": info.context_length,
    }


async def _body(request: web.Request) -> Body:
    data = await request.read()
    if not data:
        raise Refused(400, "missing request body")
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refused(400, str(error)) from error
    if not isinstance(body, dict):
        raise Refused(400, "the request is no JSON object")
    return body


def _model(body: Body) -> str:
    name = body.get("model") or body.get("name")
    if not isinstance(name, str) or not name:
        raise Refused(400, "model is required")
    return name


def _check(body: Body, model: str) -> bool:
    """Whether thinking is sent; Ollama's own refusals of what it cannot do.

    Raises:
        Refused: the model cannot do it, or a field has a wrong shape.
    """
    capabilities = _info(model).capabilities
    think = body.get("think")
    if think is not None and think not in THINK:
        allowed = 'must be "high", "medium", "low", "max", true, or false'
        raise Refused(400, f'invalid think value: "{think}" ({allowed})')
    if think and "thinking" not in capabilities:
        raise Refused(400, f'"{model}" does not support thinking')
    if body.get("tools") and "tools" not in capabilities:
        raise Refused(400, f"{model} does not support tools")
    for message in body.get("messages") or ():
        for call in message.get("tool_calls") or ():
            if not isinstance(call.get("function", {}).get("arguments"), dict):
                raise Refused(400, "arguments of a tool call must be an object")
    return think is not False and "thinking" in capabilities


def _json(data: Body, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401
    try:
        response: web.StreamResponse = await handler(request)
    except Refused as refused:
        return _json({"error": str(refused)}, refused.status)
    except web.HTTPException as error:
        return web.Response(text=f"{error.status} {error.reason}".lower(), status=error.status)
    return response


def serve(sock: socket.socket, fake: FakeOllama, ready: Callable[[], object]) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT."""
    app = fake.application()

    async def announce(app: web.Application) -> None:  # noqa: ARG001 - a signal of aiohttp's
        ready()

    app.on_startup.append(announce)
    web.run_app(app, sock=sock, print=None, shutdown_timeout=1.0, access_log=None)
