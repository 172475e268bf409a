"""Anthropic's models, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from ..aio import in_thread
from ..errors import (
    ContextOverflow,
    JSONObject,
    MochiError,
    ModelNotFound,
    ProviderBusy,
    ProviderError,
    ProviderUnreachable,
)
from .anthropic_requests import Traits, is_forced, payload_of
from .anthropic_wire import Assembly
from .attempts import (
    http_errors,
    lists_models,
    not_configured,
    not_installed,
    patiently,
    plain,
    seconds_of,
    structured_reply,
)
from .base import Chunk, ModelInfo, ModelRequest, Provider, T

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic
    from anthropic.types import ModelInfo as VendorsModel

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0
MODEL_SECONDS: Final = 300.0
"""How long what the API tells of a model is believed."""

_BUSY: Final = frozenset({429, 503, 529})
_BUSY_TYPES: Final = frozenset({"rate_limit_error", "overloaded_error"})
_TOO_LONG: Final = re.compile(
    r"prompt is too long(?:: (\d+) tokens > (\d+))?|exceed context limit: (\d+) .*> (\d+)",
    re.IGNORECASE,
)


class AnthropicProvider(Provider):
    """The models of one key."""

    def __init__(
        self,
        alias: str,
        *,
        api_key: SecretStr | str | None = None,
        base_url: str | None = None,
        max_output_tokens: int | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            alias: name of the provider.
            api_key: the vendor's key.
            base_url: address without ``/v1``; None is Anthropic itself.
            max_output_tokens: longest reply, thinking included; None is 8192, plus the thinking.
        """
        super().__init__(alias)
        self._api_key = plain(api_key)
        self._base_url = base_url
        self._max_output = max_output_tokens
        self._sdk: ModuleType | None = None
        self._opened: AsyncAnthropic | None = None
        self._known: dict[str, tuple[float, ModelInfo, Traits]] = {}

    @property
    def configured(self) -> bool:
        """Whether there is a key."""
        return bool(self._api_key)

    async def _client(self) -> AsyncAnthropic:
        if self._opened is None:
            client = await in_thread(self._open)
            if self._opened is None:
                self._opened = client
        return self._opened

    def _open(self) -> AsyncAnthropic:
        if not self._api_key:
            raise not_configured(self.alias, "ANTHROPIC_API_KEY")
        try:
            sdk = self._sdk = import_module("anthropic")
        except ImportError as error:
            raise not_installed(self.alias, "anthropic", "anthropic") from error
        client: AsyncAnthropic = sdk.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=0,
            timeout=sdk.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
        )
        return client

    async def list_models(self) -> list[ModelInfo]:
        """The models of the key, newest first."""
        client = await self._client()
        with self._translated(None):
            return [self._remember(model) async for model in client.models.list(limit=1000)]

    async def show_model(self, name: str) -> ModelInfo:
        """One model; its short names are known too."""
        until, model, _ = self._known.get(name, (0.0, None, None))
        if model is not None and until > time.monotonic():
            return model
        client = await self._client()
        with self._translated(name):
            return self._remember(await client.models.retrieve(name), name)

    def _remember(self, model: VendorsModel, name: str | None = None) -> ModelInfo:
        traits = Traits.of(model)
        abilities = ["completion", "tools"]
        if model.capabilities is not None:
            thinks, sees = (
                traits.adaptive or traits.enabled,
                model.capabilities.image_input.supported,
            )
            abilities += ["thinking"] * thinks + ["vision"] * sees
        else:
            abilities.append("thinking")  # the API refuses it where it is not so
        info = ModelInfo(
            name=name or model.id,
            family="claude",
            capabilities=abilities,
            context_length=model.max_input_tokens,
            provider=self.alias,
        )
        self._known[info.name] = (time.monotonic() + MODEL_SECONDS, info, traits)
        return info

    async def _traits(self, name: str) -> Traits:
        """What is known of a model; a server without a list of models tells nothing."""
        with suppress(MochiError):
            await self.show_model(name)
        return self._known[name][2] if name in self._known else Traits(enabled=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply; closing the generator closes the connection."""
        async with aclosing(patiently(lambda: self._stream(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        assert self._sdk is not None  # noqa: S101 - whoever has a client has the SDK
        traits = await self._traits(request.model)
        with self._translated(request.model):
            payload = payload_of(
                request, traits, most=self._max_output, strict=self._sdk.transform_schema
            )
            assembly = Assembly(request.model, forced=is_forced(payload))
            response = await client.messages.create(**payload)
            try:
                async for event in response:
                    for chunk in assembly.add(event):
                        yield chunk
            finally:
                await response.close()
        for chunk in assembly.finish():
            yield chunk

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        """A reply that validates as ``shape``: by JSON-schema mode, else by a forced tool.

        Raises:
            ProviderError: the reply does not validate, or was cut.
        """
        return await structured_reply(self, request, shape)

    async def check(self) -> bool:
        """Whether the API lists its models now."""
        return await lists_models(self)

    def describe(self) -> str:
        """The base URL."""
        return self._base_url or "Anthropic"

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
        except (self._sdk.APIConnectionError, *http_errors()) as error:
            cause = error.__cause__ or error
            raise ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} cannot be reached: "
                f"{cause or type(cause).__name__}"
            ) from error
        except self._sdk.APIStatusError as error:
            raise self._of_status(error, model) from error
        except (self._sdk.AnthropicError, ValueError) as error:
            raise ProviderError(f"Provider {self.alias!r}: {error}") from error

    def _of_status(self, error: APIStatusError, model: str | None) -> MochiError:
        """The error of an answer, or of an event in mid-stream, whose status is 200."""
        words = error.api_message or error.message
        if error.status_code in _BUSY or error.type in _BUSY_TYPES:
            wait = seconds_of(error.response.headers.get("retry-after"))
            return ProviderBusy(f"Provider {self.alias!r} is busy: {words}", retry_after=wait)
        if error.type == "not_found_error" and model is not None:
            return ModelNotFound(f"Model {model!r} is not available: {words}")
        details: JSONObject = {"provider": self.alias, "upstream_code": error.type}
        details["upstream_status"] = error.status_code
        if found := _TOO_LONG.search(words):
            counts = [int(number) for number in found.groups() if number]
            details |= dict(zip(("n_prompt_tokens", "n_ctx"), counts, strict=False))
            return ContextOverflow(model=model, details={**details, "upstream": words})
        return ProviderError(f"Provider {self.alias!r}: {words}", details=details)
