"""Anthropic's models, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes a second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from pydantic import SecretStr

from ...core.aio import in_thread_if
from ...core.times import read_time
from ...errors import MochiError, ModelNotFound, ProviderError
from ...protocol.options import ModelOptions
from ...protocol.response_format import ResponseFormat
from ..base import ALWAYS_TAKEN, Capabilities, Chunk, ModelInfo, ModelRequest, Think
from ..common.errors import Refusal
from ..common.history import ToolNames
from ..common.http import CONNECT_SECONDS, IDLE_SECONDS, http_client_of, http_errors, retry_after
from ..common.values import error_text
from ..vendor import (
    EVERYTHING,
    MODEL_CACHE_SECONDS,
    NO_ROUTE,
    VendorProvider,
    drop_environment_headers,
    unconverted,
)
from .messages import (
    LEGAL_NAME,
    AnthropicReply,
    Traits,
    is_form_of_tool,
    is_reply_forced,
    knows_format,
    payload_of,
    sampling_of,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import ModelInfo as VendorsModel
    from anthropic.types import RawMessageStreamEvent

ANTHROPIC_URL: Final = "https://api.anthropic.com"
DRAIN_SECONDS: Final = 0.5
_NO_MODEL: Final = "not_found_error"


class AnthropicProvider(VendorProvider["AsyncAnthropic"]):
    """The models of one key; ``max_output_tokens`` limits replies, their thinking included."""

    service = "Anthropic"
    module = package = extra = "anthropic"
    variable = "ANTHROPIC_API_KEY"
    sdk_error = "AnthropicError"
    capabilities = Capabilities(documents=True)
    options = frozenset({"stop"})

    def __init__(
        self,
        alias: str,
        *,
        api_key: SecretStr | str | None = None,
        base_url: str | None = None,
        max_output_tokens: int | None = None,
    ) -> None:
        super().__init__(alias, api_key=api_key, base_url=base_url)
        self._max_output = max_output_tokens
        self._known: dict[str, tuple[float, ModelInfo, Traits]] = {}

    def _connect(self) -> AsyncAnthropic:
        sdk = self._sdk
        client: AsyncAnthropic = sdk.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url or ANTHROPIC_URL,
            max_retries=0,
            timeout=sdk.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
            http_client=http_client_of(sdk, self._base_url),
        )
        drop_environment_headers(client)
        return client

    async def list_models(self) -> list[ModelInfo]:
        """Return the models of the key, newest first; none of a gateway that has no list."""
        client = await self._client()
        try:
            with self._metadata_request(None):
                models = [model async for model in client.models.list(limit=1000)]
                return [self._remember(model) for model in models if model.lifecycle != "retired"]
        except ProviderError as error:
            if error.details.get("upstream_status") not in NO_ROUTE:
                raise
            return []

    async def show_model(self, name: str) -> ModelInfo:
        """Return one model, also by its short names; any, of a gateway that has no list."""
        until, model, _ = self._known.get(name, (0.0, None, None))
        if model is not None and until > time.monotonic():
            return model
        client = await self._client()
        try:
            with self._metadata_request(name):
                return self._remember(await client.models.retrieve(name), name)
        except (ModelNotFound, ProviderError) as error:
            code = error.details.get("upstream_code")
            if error.details.get("upstream_status") not in NO_ROUTE or code == _NO_MODEL:
                raise
            return self._keep(
                ModelInfo(name=name, capabilities=list(EVERYTHING), provider=self.alias),
                Traits(enabled=True),
            )

    def _remember(self, model: VendorsModel, name: str | None = None) -> ModelInfo:
        traits = Traits.of(model)
        abilities = ["completion", "tools"]
        if model.capabilities is not None:
            abilities += ["thinking"] * (traits.adaptive or traits.enabled)
            abilities += ["vision"] * model.capabilities.image_input.supported
        else:
            abilities += ["thinking", "vision"]  # the API refuses it where it is not so
        info = ModelInfo(
            name=name or model.id,
            family="claude",
            capabilities=abilities,
            context_length=model.max_input_tokens,
            modified_at=read_time(model.created_at),
            provider=self.alias,
        )
        return self._keep(info, traits)

    def _keep(self, info: ModelInfo, traits: Traits) -> ModelInfo:
        self._known[info.name] = (time.monotonic() + MODEL_CACHE_SECONDS, info, traits)
        return info

    async def _traits(self, name: str) -> Traits:
        """Return the traits of a model; default ones if the API cannot be asked now."""
        with suppress(MochiError):
            await self.show_model(name)
        return self._known_traits(name)

    def _known_traits(self, name: str) -> Traits:
        return self._known[name][2] if name in self._known else Traits(enabled=True)

    def ignored_options(self, name: str, options: ModelOptions, think: Think) -> list[str]:
        taken = sampling_of(self._known_traits(name), think) | self.options | ALWAYS_TAKEN
        return [option for option in options.names() if option not in taken]

    def takes_format(self, name: str, response_format: ResponseFormat, *, tools: bool) -> bool:
        has_mode = knows_format(response_format, self._known_traits(name))
        return has_mode or (not tools and is_form_of_tool(response_format))

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        traits = await self._traits(request.model)
        names = ToolNames(request.tools, LEGAL_NAME)
        with self._translated(request.model):
            payload = await in_thread_if(
                request.is_long,
                payload_of,
                request,
                traits,
                names,
                alias=self.alias,
                most=self._max_output,
                strict=self._sdk.transform_schema,
            )
            reply = AnthropicReply(request.model, names, forced=is_reply_forced(payload))
            response = await client.messages.create(**unconverted(payload))
            async with self._reading(response, request.model) as body:
                async for event in response:
                    body.has_events = True
                    for chunk in reply.add(event):
                        yield chunk
                    if event.type == "message_stop":  # gateways may leave the connection open
                        await self._drain(response)
                        break
            for chunk in reply.finish():
                yield chunk

    async def _drain(self, response: AsyncStream[RawMessageStreamEvent]) -> None:
        """Read up to the end of the body, so that the connection can be used again."""
        with suppress(self._sdk.AnthropicError, *http_errors()), anyio.move_on_after(DRAIN_SECONDS):
            async for _ in response:
                pass

    def _refusal_of(self, error: Exception) -> Refusal | None:
        if not isinstance(error, self._sdk.APIStatusError):
            return None
        return Refusal(
            text=error_text(error.body) or f"HTTP {error.status_code}",
            status=error.status_code,
            codes=(error.type,),
            retry_after=retry_after(error.response.headers),
        )
