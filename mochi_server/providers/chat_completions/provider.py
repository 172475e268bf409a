"""Any server that speaks OpenAI's chat completions, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes more than a second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import SecretStr

from ...core.aio import in_thread_if
from ...core.times import read_time
from ...errors import JSONObject, ModelNotFound, ProviderError, ProviderUnreachable
from ...protocol.response_format import ResponseFormat
from ..base import Capabilities, Chunk, EmbeddingRequest, Embeddings, ModelInfo, ModelRequest
from ..common.errors import Refusal
from ..common.history import ToolNames
from ..common.http import CONNECT_SECONDS, IDLE_SECONDS, http_client_of, retry_after
from ..common.options import extra_of, fields_of
from ..common.values import error_text
from ..vendor import EVERYTHING, NO_ROUTE, VendorProvider, drop_environment_headers, unconverted
from .dialects import IMAGES, Dialects, adapted
from .messages import (
    EFFORT,
    FORMAT,
    LEGAL_NAME,
    NO_EFFORT,
    STREAM_OPTIONS,
    ChatCompletionsReply,
    Payload,
    format_field,
    messages_of,
    tools_of,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

OPENAI_URL: Final = "https://api.openai.com/v1"
LIST_CACHE_SECONDS: Final = 30.0
NO_KEY: Final = "none"
"""Sent if no key is set: the SDK requires one."""
SCHEMA_TOKENS: Final = 8192
"""Limit of a reply with a schema where the request has none: a small model may never end it."""
_DROPPED: Final = frozenset({"RemoteProtocolError", "ReadError", "WriteError"})
"""The HTTP library's errors for a connection that broke before any response."""
_BAD_REQUEST: Final = frozenset({400, 422})


class ChatCompletionsProvider(VendorProvider["AsyncOpenAI"]):
    """The models behind one base URL with its ``/v1``; None is OpenAI itself."""

    service = "OpenAI"
    module = package = extra = "openai"
    variable = "OPENAI_API_KEY, or OPENAI_BASE_URL for your own server"
    sdk_error = "OpenAIError"
    capabilities = Capabilities(documents=True)
    options = frozenset(
        {"temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty"}
    )
    headers: ClassVar[dict[str, str]] = {}

    def __init__(
        self, alias: str, *, base_url: str | None = None, api_key: SecretStr | str | None = None
    ) -> None:
        super().__init__(alias, api_key=api_key, base_url=base_url)
        self._dialects = Dialects()
        self._listed: tuple[float, list[ModelInfo] | None] | None = None

    @property
    def configured(self) -> bool:
        return bool(self._api_key or self._base_url)

    def _connect(self) -> AsyncOpenAI:
        sdk = self._sdk
        client: AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=self._api_key or NO_KEY,
            base_url=self._base_url or OPENAI_URL,
            max_retries=0,
            timeout=sdk.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
            default_headers=self.headers,
            http_client=self._http(),
        )
        # Nothing that the SDK has read in the environment.
        client.organization = client.project = client.admin_api_key = None
        drop_environment_headers(client, self.headers)
        # Imported at first use, which shall not be in the event loop.
        _ = client.models, client.chat.completions, client.embeddings
        return client

    def _http(self) -> Any:  # noqa: ANN401 - the HTTP client of the SDK's own version
        """Return what the SDK sends its requests through."""
        return http_client_of(self._sdk, self._base_url)

    async def list_models(self) -> list[ModelInfo]:
        return await self._list() or []

    async def _list(self) -> list[ModelInfo] | None:
        """Return the list; None where the server does not know the route."""
        client, models = await self._client(), None
        try:
            with self._metadata_request(None):
                page = await client.models.list()
                listed = [model for model in page.data or () if model.id]
            models = [
                replace(self._info(str(model.id)), modified_at=read_time(model.created))
                for model in listed
                if self._can_chat(str(model.id))
            ]
        except ProviderError as error:
            if error.details.get("upstream_status") not in NO_ROUTE:
                raise
        self._listed = (time.monotonic(), models)
        return models

    def _can_chat(self, name: str) -> bool:  # noqa: ARG002 - a hook
        return True

    def _info(self, name: str) -> ModelInfo:
        return ModelInfo(name=name, capabilities=list(EVERYTHING), provider=self.alias)

    async def show_model(self, name: str) -> ModelInfo:
        """Return one model of the list; any, of a server that has no list.

        OpenRouter takes ways to route behind each listed name (``:nitro``), and lists none.
        """
        listed_at, models = self._listed or (0.0, [])
        if models == [] or time.monotonic() - listed_at > LIST_CACHE_SECONDS:
            models = await self._list_or_last()
        if models is None:
            return self._info(name)
        by_name = {model.name: model for model in models}
        model = by_name.get(name) or by_name.get(name.rpartition(":")[0])
        if model is None:
            raise ModelNotFound(model=name)
        return replace(model, name=name)

    async def _list_or_last(self) -> list[ModelInfo] | None:
        try:
            return await self._list()
        except ProviderUnreachable as error:
            # Small servers answer nothing while they generate: they still have what they had.
            if self._listed is None or not isinstance(error.__cause__, TimeoutError):
                raise
            self._listed = (time.monotonic(), self._listed[1])
            return self._listed[1]

    def takes_format(self, name: str, response_format: ResponseFormat, *, tools: bool) -> bool:
        usual = super().takes_format(name, response_format, tools=tools)
        return usual and self._dialects.takes_format(name, response_format.type)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        names = ToolNames(request.tools, LEGAL_NAME)
        reply = ChatCompletionsReply(request.model, names)
        with self._translated(request.model):
            payload = await in_thread_if(request.is_long, self._payload, request, names)
            response = await self._send(client, payload)
            async with self._reading(response, request.model) as body:
                async for piece in response:
                    body.has_events = True
                    for chunk in reply.add(piece):
                        yield chunk
            for chunk in reply.finish():
                yield chunk

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        if not request.texts:
            return Embeddings(vectors=())
        client = await self._client()
        dimensions: Any = {}
        if request.dimensions is not None:
            dimensions = {"dimensions": request.dimensions}
        with self._translated(request.model):
            answer = await client.embeddings.create(
                model=request.model,
                input=[*request.texts],
                **dimensions,
            )
            found = sorted(answer.data, key=lambda each: each.index)
            vectors = [each.embedding for each in found]
            tokens = (answer.usage and answer.usage.prompt_tokens) or 0
        if len(vectors) != len(request.texts):
            raise ProviderError(
                f"Provider {self.alias!r} did not answer with a vector for each text.",
                details={"model": request.model},
            )
        return Embeddings(vectors=vectors, prompt_tokens=tokens)

    async def _send(
        self, client: AsyncOpenAI, payload: Payload
    ) -> AsyncStream[ChatCompletionChunk]:
        """Send a request, changed as the server wants it where its refusal says so.

        A request is sent again when the server dropped a kept connection in that very moment:
        llama.cpp's server closes kept connections at will, which hits one request of a hundred.
        """
        attempt, refused = self._dialects.apply(payload), list[Payload]()
        is_second = False
        create: Any = client.chat.completions.create
        while True:
            try:
                response: AsyncStream[ChatCompletionChunk] = await create(**unconverted(attempt))
                break
            except self._sdk.APIConnectionError as error:
                if is_second or type(error.__cause__).__name__ not in _DROPPED:
                    raise
                is_second = True
            except self._sdk.APIStatusError as error:
                refused.append(attempt)
                refusal = str(error.body)
                if error.status_code in _BAD_REQUEST or IMAGES.search(refusal):
                    attempt = adapted(attempt, refusal)
                if attempt in refused:
                    raise
                is_second = False
        self._dialects.learn(refused[0] if refused else attempt, attempt)
        return response

    def _payload(self, request: ModelRequest, names: ToolNames) -> Payload:
        payload: Payload = {
            "model": request.model,
            "messages": messages_of(request, names),
            "stream": True,
            STREAM_OPTIONS: {"include_usage": True},
            **self._limit(request),
            **fields_of(request.options, self.options),
        }
        if request.tools:
            payload["tools"] = tools_of(request.tools, names)
            payload["tool_choice"] = "required" if request.must_call else "auto"
        if (effort := self._effort(request)) is not None:
            payload[EFFORT] = effort
        if request.response_format is not None:
            payload[FORMAT] = format_field(request.response_format)
        if extra := self.extra_body(request):
            payload["extra_body"] = extra
        return payload

    def _effort(self, request: ModelRequest) -> str | None:
        """Return how much the model reasons, in the words of the protocol; None: as it likes."""
        if request.think is False:
            return NO_EFFORT
        return request.think if isinstance(request.think, str) else None

    def _limit(self, request: ModelRequest) -> dict[str, int]:
        limit = request.max_tokens or (None if request.schema is None else SCHEMA_TOKENS)
        return {"max_tokens": limit} if limit else {}

    def extra_body(self, request: ModelRequest) -> JSONObject:
        """Return fields beyond OpenAI's own; for servers that know some."""
        return extra_of(request.options, self.alias)

    def _refusal_of(self, error: Exception) -> Refusal | None:
        if not isinstance(error, self._sdk.APIError):
            return None
        body = error.body if isinstance(error.body, dict) else {}
        status = getattr(error, "status_code", None)
        headers = error.response.headers if isinstance(error, self._sdk.APIStatusError) else {}
        counts = {name: body.get(name) for name in ("n_prompt_tokens", "n_ctx")}
        return Refusal(
            text=error_text(error.body) or (error.message if status is None else f"HTTP {status}"),
            status=status,
            codes=(error.code, error.type),
            retry_after=retry_after(headers),
            counts={name: count for name, count in counts.items() if isinstance(count, int)},
        )
