"""Any server that speaks OpenAI's chat completions, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes more than a second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from ...core.aio import in_thread_if
from ...errors import JSONObject, ModelNotFound, ProviderError, ProviderUnreachable
from ..base import Chunk, ModelInfo, ModelRequest
from ..chat_completions.dialects import EFFORT, OPTIONS, Ways, changed
from ..chat_completions.wire import LEGAL_NAME, NO_CHAT, Assembly, to_wire, tools_of
from ..common.errors import Failure, wait_of
from ..common.history import Names
from ..common.http import Overheard, words_of
from ..common.retry import ATTEMPTS
from ..vendor import (
    CONNECT_SECONDS,
    EVERYTHING,
    IDLE_SECONDS,
    NO_ROUTE,
    VendorProvider,
    http_client_of,
    parts_of,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

LIST_SECONDS: Final = 30.0
"""How long a list of models is believed."""

NO_KEY: Final = "none"
"""Sent where no key is set: the SDK wants one."""

SCHEMA_TOKENS: Final = 2048
"""Limit of a reply with a schema where the request has none: without one it need not end."""

_DROPPED: Final = frozenset({"RemoteProtocolError", "ReadError", "WriteError"})
"""The HTTP library's errors (``httpx`` or ``httpx2``, by the SDK's version) for no response."""

_ODD_REQUEST: Final = frozenset({400, 422})
OPENAI_URL: Final = "https://api.openai.com/v1"
_OPENAI: Final = ".api.openai.com"
_AZURE: Final = ".openai.azure.com"


class OpenAICompatibleProvider(VendorProvider["AsyncOpenAI"]):
    """The models behind one base URL."""

    service = "OpenAI"
    module = package = extra = "openai"
    variable = "OPENAI_API_KEY, or OPENAI_BASE_URL for your own server"

    def __init__(
        self,
        alias: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | str | None = None,
        organization: str | None = None,
        project: str | None = None,
        abilities: Sequence[str] = EVERYTHING,
        attempts: int = ATTEMPTS,
        keep_alive: bool = True,
        http_client: Any = None,  # noqa: ANN401 - the HTTP client of the SDK's own version
    ) -> None:
        """Connect to nothing yet.

        Args:
            alias: name of the provider.
            base_url: address with its ``/v1``; None is OpenAI itself.
            api_key: sent as bearer token; a server of one's own may need none.
            organization: id of the one to bill; told to OpenAI only.
            project: id of one of its projects; told to OpenAI only.
            abilities: capabilities of every model; the protocol does not tell.
            attempts: how often to ask a busy server before the first token.
            keep_alive: whether connections are used again; pointless on loopback.
            http_client: the SDK's ``http_client``, for another transport.
        """
        super().__init__(alias, api_key=api_key, base_url=base_url, attempts=attempts)
        self._abilities = abilities
        self._headers = {} if keep_alive else {"Connection": "close"}
        self._http_client = http_client
        self._ways = Ways()
        self._listed: tuple[float, list[ModelInfo] | None] | None = None
        parts = parts_of(self._base_url or OPENAI_URL)
        host = f".{parts.hostname}" if parts is not None else ""
        self._is_azure = host.endswith(_AZURE)
        self._is_openai = host.endswith(_OPENAI) or self._is_azure
        is_own = self._is_openai and not self._is_azure
        self._organization = organization if is_own else None
        self._project = project if is_own else None

    @property
    def configured(self) -> bool:
        """Whether there is a key, or a server that may not need one."""
        return bool(self._api_key or self._base_url)

    def _connect(self) -> AsyncOpenAI:
        sdk = self._sdk
        client: AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=self._api_key or NO_KEY,
            base_url=self._base_url or OPENAI_URL,
            max_retries=0,
            timeout=sdk.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
            default_headers=self._headers,
            http_client=self._http(),
        )
        # Nothing that the SDK has read in the environment: no admin's key, no headers.
        client.organization, client.project = self._organization, self._project
        client.admin_api_key = None
        client._custom_headers = self._headers  # noqa: SLF001 - there is no other way
        _ = client.models, client.chat.completions  # imported at first use: not in the event loop
        return client

    def _http(self) -> Any:  # noqa: ANN401 - as that of the constructor
        """What the SDK sends its requests through."""
        return self._http_client or http_client_of(self._sdk, self._base_url)

    async def list_models(self) -> list[ModelInfo]:
        """The server's models, by little more than their names; none where it has no list."""
        return await self._list() or []

    async def _list(self) -> list[ModelInfo] | None:
        """The list; None where the server does not know the route."""
        client, models = await self._client(), None
        try:
            with self._answered(None):
                page = await client.models.list()
                names = [str(model.id) for model in page.data or () if model.id]
            models = [self._info(n) for n in names if not (self._is_openai and NO_CHAT.match(n))]
        except ProviderError as error:
            if error.details.get("upstream_status") not in NO_ROUTE:
                raise
        self._listed = (time.monotonic(), models)
        return models

    def _info(self, name: str) -> ModelInfo:
        return ModelInfo(name=name, capabilities=list(self._abilities), provider=self.alias)

    async def show_model(self, name: str) -> ModelInfo:
        """One model of the list; of a server that has none, any.

        Azure lists models, but runs deployments, whose names are free. OpenRouter takes ways to
        route behind each listed name (``:nitro``), and lists none.
        """
        if self._is_azure:
            return self._info(name)
        listed_at, models = self._listed or (0.0, [])
        if models == [] or time.monotonic() - listed_at > LIST_SECONDS:
            models = await self._look()
        known = {name, name.rpartition(":")[0]}
        if models is None or any(model.name in known for model in models):
            return self._info(name)
        raise ModelNotFound(model=name)

    async def _look(self) -> list[ModelInfo] | None:
        """The list, or the last one where the server has no time for it."""
        try:
            return await self._list()
        except ProviderUnreachable as error:
            # Small servers answer nothing while they generate: they still have what they had.
            if self._listed is None or not isinstance(error.__cause__, TimeoutError):
                raise
            self._listed = (time.monotonic(), self._listed[1])
            return self._listed[1]

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        names = Names(request.tools, LEGAL_NAME)
        assembly = Assembly(request.model, names)
        with self._translated(request.model):
            payload = await in_thread_if(request.is_long, self._payload, request, names)
            response = await self._send(client, payload)
            heard, is_stream = Overheard(response.response), False
            try:
                async for piece in response:
                    is_stream = True
                    for chunk in assembly.add(piece):
                        yield chunk
            finally:
                await response.close()
            if not is_stream and (error := self._instead(heard, request.model)) is not None:
                raise error
            for chunk in assembly.finish():
                yield chunk

    async def _send(
        self, client: AsyncOpenAI, payload: dict[str, Any]
    ) -> AsyncStream[ChatCompletionChunk]:
        """Send a request, changed as the server wants it where its refusal says so."""
        asked, refused = self._ways.applied(payload), list[dict[str, Any]]()
        while True:
            try:
                response = await self._send_through(client, asked)
                break
            except self._sdk.APIStatusError as error:
                refused.append(asked)
                if error.status_code in _ODD_REQUEST:
                    asked = changed(asked, str(error.body))
                if asked in refused:
                    raise
        self._ways.learn(refused[0] if refused else asked, asked)
        return response

    async def _send_through(
        self, client: AsyncOpenAI, payload: dict[str, Any]
    ) -> AsyncStream[ChatCompletionChunk]:
        """Send a request, again when the server dropped a kept connection in that very moment.

        llama.cpp's server closes kept connections at will, which hits one request of a hundred.
        """
        try:
            response: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
                **payload
            )
        except self._sdk.APIConnectionError as error:
            if type(error.__cause__).__name__ not in _DROPPED:
                raise
            response = await client.chat.completions.create(**payload)
        return response

    def _payload(self, request: ModelRequest, names: Names) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "messages": to_wire(request, names),
            "stream": True,
            OPTIONS: {"include_usage": True},
        }
        if request.tools:
            payload["tools"] = tools_of(request.tools, names)
            payload["tool_choice"] = "auto"
        if request.temperature is not None:
            payload["temperature"] = request.temperature
        if isinstance(request.think, str):
            payload[EFFORT] = request.think
        if request.schema is not None:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.schema},
            }
        if limit := self._limit(request):
            # OpenAI's newer models refuse the old name, and most other servers ignore the new one.
            payload["max_completion_tokens" if self._is_openai else "max_tokens"] = limit
        if extra := self.extra_body(request):
            payload["extra_body"] = extra
        return payload

    def _limit(self, request: ModelRequest) -> int | None:
        """Most tokens of the reply.

        A reply with a schema is bounded since a small model may never end it. OpenAI's do; theirs
        may think first, out of sight, which counts.
        """
        if request.schema is None:
            return request.max_tokens
        return None if self._is_openai else request.max_tokens or SCHEMA_TOKENS

    def extra_body(self, request: ModelRequest) -> JSONObject:  # noqa: ARG002 - a hook
        """Fields beyond OpenAI's own; for servers that know some."""
        return {}

    def _no_connection(self) -> tuple[type[Exception], ...]:
        return (self._sdk.APIConnectionError,)

    def _any_error(self) -> type[Exception]:
        found: type[Exception] = self._sdk.OpenAIError
        return found

    def _failure_of(self, error: Exception) -> Failure | None:
        """The failure of an answer, or of an event of the stream."""
        if not isinstance(error, self._sdk.APIError):
            return None
        body = error.body if isinstance(error.body, dict) else {}
        status = getattr(error, "status_code", None)
        headers = error.response.headers if isinstance(error, self._sdk.APIStatusError) else {}
        counts = {name: body.get(name) for name in ("n_prompt_tokens", "n_ctx")}
        return Failure(
            words=words_of(error.body) or (error.message if status is None else f"HTTP {status}"),
            status=status,
            codes=(error.code, error.type),
            retry_after=wait_of(headers),
            counts={name: count for name, count in counts.items() if isinstance(count, int)},
        )
