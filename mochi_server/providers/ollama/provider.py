"""Models of an Ollama server: the default provider."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import BaseModel, JsonValue

from ...core.aio import in_thread, in_thread_if
from ...errors import JSONObject, MochiError, ModelNotFound, OllamaError
from ...ollama.stream import stream_chat
from ...ollama.transport import TimeLimits, Transport, run_for_each
from ...ollama.types import (
    as_duration,
    can_chat,
    chat_body,
    full_name,
    info_of,
    tells_abilities,
    tells_enough,
    weights_in,
    window_in,
)
from ..base import (
    Capabilities,
    Chunk,
    EmbeddingRequest,
    Embeddings,
    LoadedModel,
    LoadState,
    ModelInfo,
    ModelRequest,
    Provider,
    Weights,
)
from ..common.options import extra_of, fields_of
from .tools import tool_for_ollama

if TYPE_CHECKING:
    from ...ollama.async_client import AsyncInstructorOllamaClient

T = TypeVar("T", bound=BaseModel)

MODEL_CACHE_SECONDS = 30.0
_OPTIONS = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
    }
)
_ONLY_LOAD: JSONObject = {"messages": [], "stream": False}
"""Fields of a chat that only loads its model, or unloads it."""
FIRST_TO_STOP_READING = (0, 30)
"""The first version whose models stop reading a prompt when its request is cancelled."""


class OllamaProvider(Provider):
    """One Ollama server.

    Args:
        alias: Name of the provider.
        host: Address of the server, with scheme.
        connect_timeout: Seconds to wait for a connection.
        first_byte_timeout: Seconds to wait for a reply's first byte.
        idle_timeout: Longest silence within a reply, in seconds.
        keep_alive: How long the server keeps the model loaded; None leaves it to the server.
    """

    capabilities = Capabilities(forced_calls=False, context_size=True, thinks_unasked=True)
    options = _OPTIONS | {"stop", "keep_alive"}

    def __init__(
        self,
        alias: str,
        *,
        host: str,
        connect_timeout: float = 5.0,
        first_byte_timeout: float = 600.0,
        idle_timeout: float = 300.0,
        keep_alive: str | None = None,
    ) -> None:
        super().__init__(alias)
        limits = TimeLimits(
            connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout
        )
        self._transport = Transport(host, limits)
        self._keep_alive = keep_alive
        self._known: dict[str, tuple[float, ModelInfo]] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        """Answers of ``/api/show`` by digest; they never change."""
        self._digests: dict[str, str] = {}
        self._instructor: AsyncInstructorOllamaClient | None = None
        self._probing = anyio.Lock()

    async def list_models(self) -> list[ModelInfo]:
        """Return the models that can chat, by one request where the server's list tells enough."""
        entries = await self._entries()
        missing = [entry for entry in entries if self._is_missing(entry)]
        try:
            await run_for_each(self._complete, missing)
        except MochiError:  # one that fails is listed without details
            if len(missing) == len(entries) and not any(map(tells_abilities, missing)):
                raise
        models = [self._remember(self._info(entry)) for entry in entries]
        return [model for model in models if can_chat(model)]

    async def _entries(self) -> list[dict[str, Any]]:
        answer = await self._transport.fetch("/api/tags")
        entries = [entry for entry in answer.get("models") or [] if entry.get("name")]
        self._digests = {full_name(entry["name"]): _digest_of(entry) for entry in entries}
        return entries

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo:
        shown = self._shown.get(_digest_of(entry))
        return info_of(entry["name"], listed=entry, shown=shown, provider=self.alias)

    def _is_missing(self, entry: Mapping[str, Any]) -> bool:
        return not tells_enough(entry) and _digest_of(entry) not in self._shown

    async def _complete(self, entry: Mapping[str, Any]) -> None:
        self._shown[_digest_of(entry)] = await self._show(entry["name"])

    async def _show(self, name: str) -> dict[str, Any]:
        shown = await self._transport.fetch("/api/show", {"model": name}, model=name)
        shown |= {"weights": weights_in(shown), "window": window_in(shown)}
        for bulky in ("tensors", "license", "modelfile", "projector_info"):
            shown.pop(bulky, None)
        return shown

    def _remember(self, model: ModelInfo) -> ModelInfo:
        """Keep a model's description, with the known length if the server did not tell it now."""
        _, known = self._known.get(full_name(model.name), (0.0, None))
        if known is not None and model.context_length is None:
            model = replace(model, context_length=known.context_length)
        self._known[full_name(model.name)] = (time.monotonic() + MODEL_CACHE_SECONDS, model)
        return model

    def may_have(self, name: str) -> bool:
        """Return whether a model was seen, or its name has a tag or a maker, as Ollama's have."""
        is_known = full_name(name) in self._known.keys() | self._digests.keys()
        return is_known or ":" in name or "/" in name

    async def show_model(self, name: str) -> ModelInfo:
        """Return one model, at most 30 seconds old; ``name`` without a tag means ``:latest``."""
        until, model = self._known.get(full_name(name), (0.0, None))
        if model is None or until < time.monotonic():
            model = self._remember(await self._describe(name))
        if not can_chat(model):
            raise ModelNotFound(
                f"Model {name!r} cannot chat: it is for {', '.join(model.capabilities)}.",
                details={"model": name, "capabilities": list[JsonValue](model.capabilities)},
            )
        return model

    async def probe(self, name: str) -> bool:
        """Ask a model that is loaded, or in the cloud; look up others.

        A reply would load those, in another one's place. One is asked after the other: each may be
        busy, and all of them share the server's memory.
        """
        await self._show(name)
        async with self._probing:
            if await self.load_state(name) is not LoadState.LOADED:
                return False
            return await super().probe(name)

    async def _describe(self, name: str) -> ModelInfo:
        """Return what the list and the description tell together, as in the list of models."""
        for entry in await self._entries():
            if full_name(entry["name"]) == full_name(name):
                if self._is_missing(entry):
                    await self._complete(entry)
                return self._info(entry)
        return info_of(name, shown=await self._show(name), provider=self.alias)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self.batches(request)) as batches:
            async for chunks in batches:
                for chunk in chunks:
                    yield chunk

    def batches(self, request: ModelRequest) -> AsyncGenerator[list[Chunk], None]:
        """Yield the reply; nothing is sent before the first chunk is asked for."""
        body = partial(in_thread_if, request.is_long, partial(self._body, request))
        return stream_chat(self._transport, body, model=request.model)

    def _body(self, request: ModelRequest) -> bytes:
        if request.tools:
            request = replace(request, tools=[tool_for_ollama(tool) for tool in request.tools])
        keep_alive = request.options.keep_alive
        return chat_body(
            request,
            options=self._options(request),
            keep_alive=self._keep_alive if keep_alive is None else keep_alive,
        )

    def _options(self, request: ModelRequest) -> JSONObject:
        fields = fields_of(request.options, _OPTIONS)
        if stops := request.options.stops:
            fields["stop"] = stops
        return {**fields, **extra_of(request.options, self.alias)}

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        body: JSONObject = {
            "model": request.model,
            "input": [*request.texts],
            "truncate": request.truncate,
        }
        if request.dimensions is not None:
            body["dimensions"] = request.dimensions
        body |= self._keep_alive_field(request.keep_alive)
        answer = await self._transport.run("/api/embed", body, model=request.model)
        vectors, tokens = answer.get("embeddings"), answer.get("prompt_eval_count")
        if not isinstance(vectors, list) or len(vectors) != len(request.texts):
            text = "Ollama did not answer with a vector for each text."
            raise OllamaError(text, details={"model": request.model})
        return Embeddings(vectors=vectors, prompt_tokens=tokens if isinstance(tokens, int) else 0)

    def _keep_alive_field(self, keep_alive: str | float | None) -> JSONObject:
        """Return the field of a request, with the provider's value where that names none."""
        value = self._keep_alive if keep_alive is None else keep_alive
        return {} if value is None else {"keep_alive": as_duration(value)}

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        # Half a second of imports, not to be spent in the event loop nor at start-up.
        module = await in_thread(import_module, "mochi_server.ollama.async_client")
        if self._instructor is None:
            self._instructor = module.AsyncInstructorOllamaClient(
                self._transport.address, limits=self._transport.limits, keep_alive=self._keep_alive
            )
        response = await self._instructor.structured_response(
            request.model,
            request.messages,
            shape,
            think=request.think or False,
            context_window=request.num_ctx,
            max_tokens=request.max_tokens,
            temperature=request.options.temperature,
        )
        return shape.model_validate_json(response.message.content or "")

    async def weights_of(self, name: str) -> Weights:
        digest = self._digests.get(full_name(name), "")
        shown = self._shown.get(digest) or await self._show(name)
        if digest:
            self._shown[digest] = shown
        return Weights(key=shown["weights"] or full_name(name), window=shown["window"])

    async def loaded_window(self, model: str) -> int | None:
        length = (await self._entry_of(model, await self.running()) or {}).get("context_length")
        return length if isinstance(length, int) else None

    async def _entry_of(self, model: str, running: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Find the model among those that are loaded, which are listed under one of their names."""
        by_name = {str(entry.get("name") or entry.get("model")): entry for entry in running}
        if not by_name or full_name(model) in by_name:
            return by_name.get(full_name(model))
        weights = await self.weights_of(model)
        for name, entry in by_name.items():
            with suppress(ModelNotFound):  # deleted since it was loaded
                if (await self.weights_of(name)).key == weights.key:
                    return entry
        return None

    @property
    def shared_server(self) -> str:
        return self._transport.host

    async def load_state(self, name: str) -> LoadState:
        """Return whether a request would have to load the model; models in the cloud never."""
        if (await self.show_model(name)).remote_host is not None:
            return LoadState.LOADED
        running = await self.running()
        if await self._entry_of(name, running) is not None:
            return LoadState.LOADED
        return LoadState.OTHERS_LOADED if running else LoadState.NONE_LOADED

    async def reads_cancelled_prompts(self) -> bool:
        """Return True before 0.30, and where the version is unknown (somebody built the server)."""
        numbers = re.match(r"v?(\d+)\.(\d+)", await self.version())
        return numbers is None or tuple(map(int, numbers.groups())) < FIRST_TO_STOP_READING

    async def load(
        self, name: str, *, num_ctx: int | None = None, keep_alive: str | float | None = None
    ) -> None:
        body = {**_ONLY_LOAD, "model": name, **self._keep_alive_field(keep_alive)}
        if num_ctx is not None:
            body["options"] = {"num_ctx": num_ctx}
        await self._transport.run("/api/chat", body, model=name)

    async def unload(self, name: str) -> None:
        body = {**_ONLY_LOAD, "model": name, "keep_alive": 0}
        await self._transport.run("/api/chat", body, model=name)

    async def loaded_models(self) -> list[LoadedModel]:
        return [
            LoadedModel(
                model=info_of(entry["name"], listed=entry, provider=self.alias),
                size=entry.get("size") or 0,
                vram=entry.get("size_vram") or 0,
                window=entry.get("context_length"),
                expires_at=entry.get("expires_at"),
            )
            for entry in await self.running()
            if entry.get("name")
        ]

    async def running(self) -> list[dict[str, Any]]:
        """Return the models that are loaded, as the server lists them.

        With ``name``, ``size`` and ``size_vram`` (bytes), ``context_length`` (tokens, since 0.10).
        """
        answer = await self._transport.fetch("/api/ps")
        return list(answer.get("models") or [])

    async def version(self) -> str:
        """Return the server's version, such as ``0.33.0``; ``0.0.0`` of one that somebody built."""
        return str((await self._transport.fetch("/api/version")).get("version") or "unknown")

    async def check(self) -> bool:
        with anyio.move_on_after(self._transport.limits.connect), suppress(MochiError):
            await self.version()
            return True
        return False

    def describe(self) -> str:
        return self._transport.host

    async def aclose(self) -> None:
        await self._transport.aclose()
        if self._instructor is not None:
            await self._instructor.aclose()
            self._instructor = None


def _digest_of(entry: Mapping[str, Any]) -> str:
    """Return the digest of a listed model, else its name; it changes when the model does."""
    return str(entry.get("digest") or entry["name"])
