"""A stand-in for Ollama: its wire, without a model, for other people's clients."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

from ..chunks import Abort, ScriptedChunk, first_audible, paced
from ..reply import compose_async, listed_models, model_info, prompt_tokens
from ..samples import DIMENSIONS, NoExample
from ..script import BadScript
from .answers import BARE_JSON, NDJSON, Body, FakeResponse, encoded
from .chat import OllamaStream, joined, last_line, reply_request
from .generate import Generation, generate_of
from .models import FakeModel, FakeModels
from .pulls import pulled
from .rules import (
    BEYOND_CHAT,
    ROUTES,
    VERSION,
    chat_of,
    check_fits,
    check_host,
    check_origin,
    check_route,
    may_come_from,
    shown_model,
    thinks,
    unloads,
    window_of,
)
from .vectors import embedded, embedding

PORT: Final = 11434
"""Ollama's own."""

MOST_BYTES: Final = 64 * 2**20
EMBEDS: Final = "lorem-embed:latest"
"""A model that cannot chat."""

PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS",
    "Access-Control-Allow-Headers": "Authorization,Content-Type,User-Agent,Accept,X-Requested-With",
    "Access-Control-Max-Age": "43200",
}


def _model(name: str) -> FakeModel:
    info = model_info(name.removesuffix(":latest"))
    return FakeModel(
        name,
        capabilities=["embedding"] if name == EMBEDS else list(info.capabilities),
        context_length=info.context_length,
        embedding_length=DIMENSIONS,
        family=info.family or "",
        parameter_size=info.parameter_size or "",
        parameter_count=0,
        block_count=1,
        quantization=info.quantization_level or "",
        size=1_000_000,
    )


_Told = Callable[[Body], Iterable[Body]]
"""What is sent of a line of a chat."""


def _as_chat(line: Body) -> Iterable[Body]:
    return (line,)


def _last(told: _Told, line: Body) -> Body:
    (found,) = told(line)
    return found


class FakeOllama:
    """The routes that chats, plain generation and embeddings need."""

    def __init__(
        self, *, words_per_second: float = 50, cancel_after_words: int | None = None
    ) -> None:
        """Set the pace of replies (0 for none), and after how many words each is cut."""
        self._pace = words_per_second
        self._cancel = cancel_after_words
        listed = [*(FakeModels.full(model.name) for model in listed_models()), EMBEDS]
        self._models = FakeModels(map(_model, listed), others=_model)

    def application(self, *, on_loopback: bool = True) -> web.Application:
        """An application to serve.

        Args:
            on_loopback: whether it listens there, and so must look at ``Host``.
        """

        @web.middleware
        async def answering(request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401
            try:
                _admit(request, on_loopback=on_loopback)
                if request.method == "OPTIONS":
                    return web.Response(status=204, headers=PREFLIGHT)
                check_route(request.method, request.path, {**ROUTES, **BEYOND_CHAT})
                response: web.StreamResponse = await handler(request)
            except FakeResponse as refusal:
                return _sent(refusal)
            except ConnectionResetError:  # nobody is there to hear it
                return web.Response()
            return response

        app = web.Application(client_max_size=MOST_BYTES, middlewares=[answering])
        app.router.add_get("/", _root)
        app.router.add_get("/api/version", _version)
        app.router.add_get("/api/tags", self._tags)
        app.router.add_get("/api/ps", self._ps)
        app.router.add_post("/api/show", self._show)
        app.router.add_post("/api/chat", self._chat)
        app.router.add_post("/api/generate", self._generate)
        app.router.add_post("/api/embed", self._embed)
        app.router.add_post("/api/embeddings", self._embeddings)
        app.router.add_post("/api/pull", self._pull)
        app.on_response_prepare.append(_as_go_does)
        return app

    async def _tags(self, request: web.Request) -> web.Response:
        del request
        return _sent(FakeResponse(200, self._models.tags()))

    async def _ps(self, request: web.Request) -> web.Response:
        del request
        return _sent(FakeResponse(200, self._models.ps()))

    async def _show(self, request: web.Request) -> web.Response:
        return _sent(FakeResponse(200, shown_model(await request.read(), self._models).shown()))

    async def _embed(self, request: web.Request) -> web.Response:
        return _sent(FakeResponse(200, embedded(await request.read(), self._models)))

    async def _embeddings(self, request: web.Request) -> web.Response:
        return _sent(FakeResponse(200, embedding(await request.read(), self._models)))

    async def _pull(self, request: web.Request) -> web.Response:
        lines, streams = pulled(await request.read(), self._models)
        if streams:
            return _sent(FakeResponse(200, b"".join(map(encoded, lines)), NDJSON))
        return _sent(FakeResponse(200, lines[-1]))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        return await self._reply(request, *chat_of(raw, self._models), _as_chat)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        return await self._reply(request, *generate_of(raw, self._models), Generation())

    async def _reply(
        self, request: web.Request, body: Body, model: FakeModel, told: _Told
    ) -> web.StreamResponse:
        window = window_of(body, model)
        model.runner.loaded = None if unloads(body) else window
        if not body.get("messages"):
            reason = "load" if model.runner.loaded else "unload"
            line = last_line(body["model"], {"content": ""}, reason)
            return _sent(FakeResponse(200, _last(told, line)))
        check_fits(body, prompt_tokens(body["messages"], body.get("tools") or ()), window)
        asked = reply_request(body, thinks=thinks(body, model), window=window)
        try:
            chunks = await compose_async(asked, self._cancel, size=len(await request.read()))
        except BadScript as problem:
            raise FakeResponse(400, str(problem)) from problem
        except NoExample as problem:
            raise FakeResponse(500, "invalid JSON schema in format") from problem
        words = OllamaStream(body["model"])
        async with aclosing(paced(chunks, self._pace)) as said:
            first = await first_audible(said)
            if isinstance(first, Abort) and first.failure is not None:
                raise FakeResponse(first.failure.status, first.failure.message)
            if body.get("stream", True):
                return await _stream(request, first, said, words, told)
            return await _whole(request, first, said, words, told)


def _sent(answer: FakeResponse) -> web.Response:
    headers = {"Content-Type": answer.content_type} if answer.content_type else {}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _admit(request: web.Request, *, on_loopback: bool) -> None:
    host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
    check_origin(origin, host)
    if on_loopback:
        check_host(host)


async def _as_go_does(request: web.Request, response: web.StreamResponse) -> None:
    """The headers that Ollama sends, and none that it does not."""
    response.headers.pop("Server", None)
    if response.content_length == 0:
        response.headers.pop("Content-Type", None)
    origin = request.headers.get("Origin")
    if origin and may_come_from(origin, request.headers.get("Host", "")):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"


async def _stream(
    request: web.Request,
    first: ScriptedChunk,
    rest: AsyncGenerator[ScriptedChunk, None],
    words: OllamaStream,
    told: _Told,
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": NDJSON})
    if _hangs_up(request, first):
        return response
    async for chunk in _from(first, rest):
        if _hangs_up(request, chunk):
            break
        for line in words.encode(chunk):
            if "error" in line and not response.prepared:
                raise FakeResponse(_status_of(chunk), line["error"], BARE_JSON)
            for found in told(line):
                await response.prepare(request)
                await response.write(encoded(found))
            if "error" in line:
                return response
    return response


def _status_of(chunk: ScriptedChunk) -> int:
    return chunk.failure.status if isinstance(chunk, Abort) and chunk.failure is not None else 500


async def _whole(
    request: web.Request,
    first: ScriptedChunk,
    rest: AsyncGenerator[ScriptedChunk, None],
    words: OllamaStream,
    told: _Told,
) -> web.Response:
    lines: list[Body] = []
    async for chunk in _from(first, rest):
        if isinstance(chunk, Abort) and chunk.kind != "error":
            _hangs_up(request, Abort(kind="disconnect"))  # half an answer in one piece is none
            break
        lines += words.encode(chunk)
        if lines and "error" in lines[-1]:
            raise FakeResponse(_status_of(chunk), lines[-1]["error"])
    return _sent(FakeResponse(200, _last(told, joined(lines)) if lines else {}))


async def _from(
    first: ScriptedChunk, rest: AsyncGenerator[ScriptedChunk, None]
) -> AsyncGenerator[ScriptedChunk, None]:
    yield first
    async for chunk in rest:
        yield chunk


def _hangs_up(request: web.Request, chunk: ScriptedChunk) -> bool:
    """Break the connection where the chunk says so."""
    if not (isinstance(chunk, Abort) and chunk.kind == "disconnect"):
        return False
    if request.transport is not None:
        request.transport.abort()
    return True


async def _root(request: web.Request) -> web.Response:
    del request
    return _sent(FakeResponse(200, b"Ollama is running", "text/plain; charset=utf-8"))


async def _version(request: web.Request) -> web.Response:
    del request
    return _sent(FakeResponse(200, {"version": VERSION}))


def serve(sock: socket.socket, fake: FakeOllama, ready: Callable[[], object]) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; a client that leaves ends its reply."""
    app = fake.application(on_loopback=ip_address(sock.getsockname()[0]).is_loopback)

    async def announce(app: web.Application) -> None:  # noqa: ARG001 - a signal of aiohttp's
        ready()

    app.on_startup.append(announce)
    web.run_app(
        app, sock=sock, print=None, access_log=None, shutdown_timeout=1.0, handler_cancellation=True
    )
