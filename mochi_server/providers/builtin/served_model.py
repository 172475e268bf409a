"""A model file that is being served: its engine, and the client of the child that runs it now."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

from ...core.aio import run_to_completion
from ...errors import JSONObject
from ..base import ModelRequest
from ..chat_completions.provider import ChatCompletionsProvider
from .engine import Endpoint, Engine


class LlamaServer(ChatCompletionsProvider):
    """llama.cpp's dialect: sampling beyond OpenAI's, and templates that can think."""

    attempts = 1
    # Kept connections save nothing on loopback, and llama.cpp closes them at will.
    headers: ClassVar = {"Connection": "close"}

    def __init__(self, alias: str, endpoint: Endpoint, sampling: JSONObject) -> None:
        super().__init__(alias, base_url=endpoint.base_url, api_key=endpoint.api_key)
        self.endpoint = endpoint
        self.uses = 0
        """Requests that run through it."""
        self.closed = False
        self._sampling = sampling

    def extra_body(self, request: ModelRequest) -> JSONObject:
        extra = dict(self._sampling)
        if not isinstance(request.think, str):
            extra["chat_template_kwargs"] = {"enable_thinking": request.think}
        return extra

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
        self._left = False

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[LlamaServer, None]:
        """Provide a client whose child answers and stays for the length of the block.

        Raises:
            ProviderError: the model cannot be loaded; the message has llama.cpp's reason.
            ProviderUnreachable: it does not come up in time.
        """
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
        if not client.uses and (self._left or client is not self.client) and not client.closed:
            await run_to_completion(client.aclose())

    async def leave(self) -> None:
        """Take no new requests; the child may end after the present ones."""
        self._left = True
        await self.engine.leave()
        if self.client is not None:
            await self._close_unused(self.client)

    async def aclose(self) -> None:
        """Leave the model now; a child that nobody else uses is ended."""
        if self.client is not None:
            await self.client.aclose()
        await self.engine.aclose()
