"""A model file that a child process serves, and the client of that process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar, Final

from ...core.aio import run_to_completion
from ...errors import JSONObject
from ..base import ModelRequest
from ..chat_completions.provider import ChatCompletionsProvider
from ..common.options import fields_of
from .engine import Endpoint, Engine

LLAMA_OPTIONS: Final = frozenset({"top_k", "min_p", "repeat_penalty"})


class LlamaServer(ChatCompletionsProvider):
    """llama.cpp's dialect: sampling beyond OpenAI's, and templates that can think."""

    options = ChatCompletionsProvider.options | LLAMA_OPTIONS
    attempts = 1
    # Kept connections save nothing on loopback, and llama.cpp closes them at will.
    headers: ClassVar = {"Connection": "close"}

    def __init__(self, alias: str, endpoint: Endpoint, sampling: JSONObject) -> None:
        super().__init__(alias, base_url=endpoint.base_url, api_key=endpoint.api_key)
        self.endpoint = endpoint
        self.uses = 0
        self.closed = False
        self._sampling = sampling

    def extra_body(self, request: ModelRequest) -> JSONObject:
        own = fields_of(request.options, LLAMA_OPTIONS)
        extra = {**self._sampling, **own, **super().extra_body(request)}
        if not isinstance(request.think, str):
            extra["chat_template_kwargs"] = {"enable_thinking": bool(request.think)}
        return extra

    def _effort(self, request: ModelRequest) -> str | None:
        return super()._effort(request) if request.think else None

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()


class ServedModel:
    """One model file as it is now. A child that comes back gets a new client.

    The old client, and the engine of a replaced file, stay for the requests that they have.
    """

    def __init__(self, alias: str, engine: Engine, sampling: JSONObject) -> None:
        self.engine = engine
        self.client: LlamaServer | None = None
        self._alias = alias
        self._sampling = sampling
        self._retired = False

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[LlamaServer, None]:
        async with self.engine.use() as endpoint:
            client, old = self._client_of(endpoint)
            client.uses += 1
            try:
                if old is not None:
                    await self._close_unused(old)
                yield client
            finally:
                client.uses -= 1
                await self._close_unused(client)

    def _client_of(self, endpoint: Endpoint) -> tuple[LlamaServer, LlamaServer | None]:
        """Return the client of the child, and the one that it replaces."""
        old = self.client
        if old is not None and old.endpoint == endpoint and not old.closed:
            return old, None
        self.client = client = LlamaServer(self._alias, endpoint, self._sampling)
        return client, old

    async def _close_unused(self, client: LlamaServer) -> None:
        if not client.uses and (self._retired or client is not self.client) and not client.closed:
            await run_to_completion(client.aclose())

    async def retire(self) -> None:
        """Take no new requests; the child may end after the present ones."""
        self._retired = True
        await self.engine.retire()
        if self.client is not None:
            await self._close_unused(self.client)

    async def aclose(self) -> None:
        if self.client is not None:
            await self.client.aclose()
        await self.engine.aclose()
