"""Any server that speaks OpenAI's chat completions, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes more than a second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import SecretStr

from ..aio import in_thread
from ..errors import (
    ContextOverflow,
    JSONObject,
    ModelNotFound,
    ProviderBusy,
    ProviderError,
    ProviderUnreachable,
)
from . import attempts as shared
from .base import Chunk, ModelInfo, ModelRequest, Provider, T
from .openai_wire import NO_CHAT, Assembly, to_wire

if TYPE_CHECKING:
    from openai import APIError, APIStatusError, AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0
"""Longest silence, before the first byte (queue, loading, the prompt) and within a reply."""

LIST_SECONDS: Final = 30.0
"""How long a list of models is believed."""

NO_KEY: Final = "none"
"""Sent where no key is set: the SDK wants one."""

SCHEMA_TOKENS: Final = 2048
"""Limit of a reply with a schema where the request has none: without one it need not end."""

_DROPPED: Final = "RemoteProtocolError"
"""The HTTP library's error (``httpx`` or ``httpx2``, by the SDK's version) for no response."""

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_NOT_FOUND, _TOO_MANY, _UNAVAILABLE = 404, 429, 503


def load_sdk() -> ModuleType:
    """The SDK; the first time takes more than a second, so not in the event loop."""
    return import_module("openai")


class OpenAICompatibleProvider(Provider):
    """The models behind one base URL."""

    def __init__(
        self,
        alias: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | str | None = None,
        abilities: Sequence[str] = ("completion",),
        attempts: int = 1,
        limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        keep_alive: bool = True,
        http_client: Any = None,  # noqa: ANN401 - the HTTP client of the SDK's own version
    ) -> None:
        """Connect to nothing yet.

        Args:
            alias: name of the provider.
            base_url: address with its ``/v1``; None is OpenAI itself.
            api_key: sent as bearer token; a server of one's own may need none.
            abilities: capabilities of every model; the protocol does not tell.
            attempts: how often to ask a busy server before the first token.
            limit_field: the name that the server has for it.
            keep_alive: whether connections are used again; pointless on loopback.
            http_client: the SDK's ``http_client``, for another transport.
        """
        super().__init__(alias)
        self._base_url = base_url
        self._api_key = shared.plain(api_key)
        self._abilities = abilities
        self._attempts = attempts
        self._limit_field = limit_field
        self._headers = {} if keep_alive else {"Connection": "close"}
        self._http_client = http_client
        self._sdk: ModuleType | None = None
        self._opened: AsyncOpenAI | None = None
        self._listed: tuple[float, list[ModelInfo]] | None = None

    @property
    def configured(self) -> bool:
        """Whether there is a key, or a server that may not need one."""
        return bool(self._api_key or self._base_url)

    async def _client(self) -> AsyncOpenAI:
        if self._opened is None:
            client = await in_thread(self._open)
            if self._opened is None:
                self._opened = client
        return self._opened

    def _open(self) -> AsyncOpenAI:
        if not self.configured:
            raise shared.not_configured(
                self.alias, "OPENAI_API_KEY, or OPENAI_BASE_URL for your own server"
            )
        try:
            openai = self._sdk = load_sdk()
        except ImportError as error:
            raise shared.not_installed(self.alias, "openai", "openai") from error
        client: AsyncOpenAI = openai.AsyncOpenAI(
            api_key=self._api_key or NO_KEY,
            base_url=self._base_url,
            max_retries=0,
            timeout=openai.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
            default_headers=self._headers,
            http_client=self._http_client,
        )
        return client

    async def list_models(self) -> list[ModelInfo]:
        """The server's models; it says little more than their names."""
        client = await self._client()
        with self._translated(None):
            page = await client.models.list()
        models = [
            ModelInfo(name=m.id, capabilities=list(self._abilities), provider=self.alias)
            for m in page.data
            if not (self._base_url is None and NO_CHAT.search(m.id))
        ]
        self._listed = (time.monotonic(), models)
        return models

    async def show_model(self, name: str) -> ModelInfo:
        """One model of the list."""
        listed_at, models = self._listed or (0.0, [])
        if not models or time.monotonic() - listed_at > LIST_SECONDS:
            models = await self.list_models()
        for model in models:
            if model.name == name:
                return model
        raise ModelNotFound(model=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply; closing the generator closes the connection."""
        tries = shared.patiently(lambda: self._stream(request), attempts=self._attempts)
        async with aclosing(tries) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        assembly = Assembly()
        with self._translated(request.model):
            response = await self._send(client, self._payload(request))
            try:
                async for piece in response:
                    for chunk in assembly.add(piece):
                        yield chunk
            finally:
                await response.close()
        for chunk in assembly.finish():
            yield chunk

    async def _send(
        self, client: AsyncOpenAI, payload: dict[str, Any]
    ) -> AsyncStream[ChatCompletionChunk]:
        """Send a request, again when the server dropped a kept connection in that very moment.

        llama.cpp's server closes kept connections at will, which hits one request of a hundred.
        """
        assert self._sdk is not None  # noqa: S101 - whoever has a client has the SDK
        try:
            response: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
                **payload
            )
        except self._sdk.APIConnectionError as error:
            if type(error.__cause__).__name__ != _DROPPED:
                raise
            response = await client.chat.completions.create(**payload)
        return response

    def _payload(self, request: ModelRequest) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "messages": to_wire(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            payload["tools"] = list(request.tools)
        if request.temperature is not None:
            payload["temperature"] = request.temperature
        if isinstance(request.think, str):
            payload["reasoning_effort"] = request.think
        limit = request.max_tokens
        if request.schema is not None:
            limit = limit or SCHEMA_TOKENS
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.schema},
            }
        if limit is not None:
            payload[self._limit_field] = limit
        if extra := self.extra_body(request):
            payload["extra_body"] = extra
        return payload

    def extra_body(self, request: ModelRequest) -> JSONObject:  # noqa: ARG002 - a hook
        """Fields beyond OpenAI's own; for servers that know some."""
        return {}

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        """A reply that validates as ``shape``, by the server's JSON-schema mode.

        Raises:
            ProviderError: the reply does not validate, or was cut.
        """
        return await shared.structured_reply(self, request, shape)

    async def check(self) -> bool:
        """Whether the server lists its models now."""
        return await shared.lists_models(self)

    def describe(self) -> str:
        """The base URL."""
        return self._base_url or "OpenAI"

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    @contextmanager
    def _translated(self, model: str | None) -> Iterator[None]:
        """The SDK's errors as ours."""
        assert self._sdk is not None  # noqa: S101 - whoever has a client has the SDK
        try:
            yield
        except self._sdk.APIConnectionError as error:
            raise ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} cannot be reached: {_cause(error)}"
            ) from error
        except self._sdk.APIStatusError as error:
            raise self._of_status(error, model) from error
        except self._sdk.APIError as error:
            raise self._of_body(error, model) from error
        except (self._sdk.OpenAIError, ValueError) as error:
            raise ProviderError(f"Provider {self.alias!r}: {error}") from error

    def _of_status(self, error: APIStatusError, model: str | None) -> Exception:
        """The error of an answer that is not 2xx."""
        if error.status_code in {_TOO_MANY, _UNAVAILABLE}:
            return ProviderBusy(
                f"Provider {self.alias!r} is busy: {_words(error)}",
                retry_after=shared.seconds_of(error.response.headers.get("retry-after")),
            )
        if error.status_code == _NOT_FOUND and model is not None:
            return ModelNotFound(f"Model {model!r} is not available: {_words(error)}")
        return self._of_body(error, model)

    def _of_body(self, error: APIError, model: str | None) -> Exception:
        """The error that a body or an event of the stream describes."""
        details: JSONObject = {"provider": self.alias, "upstream_code": error.code}
        status = getattr(error, "status_code", None)
        if status is not None:
            details["upstream_status"] = status
        if {error.code, error.type} & _OVERFLOW_CODES:
            body = error.body if isinstance(error.body, dict) else {}
            counts = {name: body[name] for name in ("n_prompt_tokens", "n_ctx") if name in body}
            details |= {"upstream": _words(error), **counts}
            return ContextOverflow(model=model, details=details)
        return ProviderError(f"Provider {self.alias!r}: {_words(error)}", details=details)


def _words(error: APIError) -> str:
    """What the server itself said, without the SDK's ``Error code: 400 - {…}``."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return error.message


def _cause(error: BaseException) -> str:
    return str(error.__cause__ or error) or type(error.__cause__ or error).__name__
