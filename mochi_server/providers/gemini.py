"""Google's models, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes more than a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

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
from .gemini_wire import Assembly, config_of, contents_of

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import Model

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0
MODEL_SECONDS: Final = 300.0
"""How long what the API tells of a model is believed."""

DEFAULT_MAX_TOKENS: Final = 8192
THINKING_TOKENS: Final = 24576
"""Room for thinking, which the API counts as output, where nothing limits the reply."""

_BUSY: Final = frozenset({429, 503})
_NOT_FOUND: Final = 404
_TOO_LONG: Final = re.compile(r"token count \(?(\d+)\)? exceeds .*?(\d+)", re.IGNORECASE)
_taken: ContextVar[list[Any]] = ContextVar("_taken")
"""The HTTP responses of the stream that is being opened."""


class GeminiProvider(Provider):
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
            base_url: address without the API's version; None is Google itself.
            max_output_tokens: longest reply, thinking included; None is 8192, plus the thinking.
        """
        super().__init__(alias)
        self._api_key = plain(api_key)
        self._base_url = base_url
        self._max_output = max_output_tokens
        self._errors: ModuleType | None = None
        self._opened: Client | None = None
        self._http: Any = None
        self._known: dict[str, tuple[float, ModelInfo, int | None]] = {}

    @property
    def configured(self) -> bool:
        """Whether there is a key."""
        return bool(self._api_key)

    async def _client(self) -> Client:
        if self._opened is None:
            http, client = await in_thread(self._open)
            if self._opened is None:
                self._http, self._opened = http, client
        return self._opened

    def _open(self) -> tuple[Any, Client]:
        if not self._api_key:
            raise not_configured(self.alias, "GEMINI_API_KEY")
        try:
            genai = import_module("google.genai")
            self._errors = import_module("google.genai.errors")
        except ImportError as error:
            raise not_installed(self.alias, "google-genai", "gemini") from error
        # The SDK's own client would wait for ever, and try again after up to ten seconds.
        hooks = {"request": [_limit_connect], "response": [_take]}
        http = import_module("httpx").AsyncClient(event_hooks=hooks, follow_redirects=True)
        options = {
            "base_url": self._base_url,
            "timeout": int(IDLE_SECONDS * 1000),
            "httpx_async_client": http,
            "retry_options": {"attempts": 1},
        }
        return http, genai.Client(api_key=self._api_key, vertexai=False, http_options=options)

    async def list_models(self) -> list[ModelInfo]:
        """The models that generate text."""
        client = await self._client()
        with self._translated(None):
            pages = await client.aio.models.list(config={"page_size": 1000})
            return [self._remember(model) async for model in pages if _can_chat(model)]

    async def show_model(self, name: str) -> ModelInfo:
        """One model."""
        until, model, _ = self._known.get(name, (0.0, None, None))
        if model is not None and until > time.monotonic():
            return model
        client = await self._client()
        with self._translated(name):
            return self._remember(await client.aio.models.get(model=name))

    def _remember(self, model: Model) -> ModelInfo:
        name = (model.name or "").removeprefix("models/")
        info = ModelInfo(
            name=name,
            family=name.partition("-")[0],
            capabilities=["completion", "tools", *(["thinking"] if model.thinking else [])],
            context_length=model.input_token_limit,
            provider=self.alias,
        )
        self._known[name] = (time.monotonic() + MODEL_SECONDS, info, model.output_token_limit)
        return info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply; closing the generator closes the connection."""
        async with aclosing(patiently(lambda: self._stream(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        client = await self._client()
        config: Any = {**config_of(request), "max_output_tokens": await self._limit(request)}
        assembly = Assembly(request.model)
        responses: list[Any] = []
        with self._translated(request.model):
            _taken.set(responses)
            answers: Any = await client.aio.models.generate_content_stream(
                model=request.model,
                contents=contents_of(request.messages, request.model),
                config=config,
            )
            try:
                async for answer in answers:
                    for chunk in assembly.add(answer):
                        yield chunk
            finally:  # the SDK leaves its connection to the garbage collector
                for response in responses:
                    await response.aclose()
                await answers.aclose()
        for chunk in assembly.finish():
            yield chunk

    async def _limit(self, request: ModelRequest) -> int:
        with suppress(MochiError):
            await self.show_model(request.model)
        *_, most = self._known.get(request.model, (None,))
        thinking = THINKING_TOKENS if request.think else 0
        bounds = (self._max_output or DEFAULT_MAX_TOKENS + thinking, request.max_tokens, most)
        return min(bound for bound in bounds if bound)

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        """A reply that validates as ``shape``, by the API's JSON-schema mode.

        Raises:
            ProviderError: the reply does not validate, or was cut.
        """
        return await structured_reply(self, request, shape)

    async def check(self) -> bool:
        """Whether the API lists its models now."""
        return await lists_models(self)

    def describe(self) -> str:
        """The base URL."""
        return self._base_url or "Gemini"

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._opened = self._opened, None
        if client is not None:
            await self._http.aclose()
            client.close()

    @contextmanager
    def _translated(self, model: str | None) -> Iterator[None]:
        """The SDK's errors as ours."""
        assert self._errors is not None  # noqa: S101 - whoever has a client has the SDK
        try:
            yield
        except http_errors() as error:
            raise ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} cannot be reached: "
                f"{error or type(error).__name__}"
            ) from error
        except self._errors.APIError as error:
            raise self._of_status(error, model) from error
        except ValueError as error:
            raise ProviderError(f"Provider {self.alias!r}: {error}") from error

    def _of_status(self, error: APIError, model: str | None) -> MochiError:
        """The error of an answer, or of one within the stream."""
        words = str(error.message or error)
        if error.code in _BUSY:
            return ProviderBusy(
                f"Provider {self.alias!r} is busy: {words}", retry_after=_retry_after(error)
            )
        if error.code == _NOT_FOUND and model is not None:
            return ModelNotFound(f"Model {model!r} is not available: {words}")
        details: JSONObject = {"provider": self.alias, "upstream_code": error.status}
        details["upstream_status"] = error.code
        if found := _TOO_LONG.search(words):
            needed, room = map(int, found.groups())
            details |= {"n_prompt_tokens": needed, "n_ctx": room, "upstream": words}
            return ContextOverflow(model=model, details=details)
        return ProviderError(f"Provider {self.alias!r}: {words}", details=details)


async def _limit_connect(request: Any) -> None:  # noqa: ANN401 - the HTTP library's
    """The SDK has one time limit for everything."""
    limits = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {**limits, "connect": CONNECT_SECONDS}


async def _take(response: Any) -> None:  # noqa: ANN401 - the HTTP library's
    if (responses := _taken.get(None)) is not None:
        responses.append(response)


def _can_chat(model: Model) -> bool:
    actions = model.supported_actions or ["generateContent"]
    return "generateContent" in actions and "-tts" not in (model.name or "")


def _retry_after(error: APIError) -> int | None:
    """What the header says, else what the body does (``"retryDelay": "34.07s"``)."""
    headers = getattr(error.response, "headers", None) or {}
    wait = seconds_of(headers.get("retry-after"))
    body = error.details if isinstance(error.details, dict) else {}
    for detail in body.get("error", body).get("details") or ():
        if wait is None and isinstance(detail, dict) and "retryDelay" in detail:
            wait = seconds_of(str(detail["retryDelay"]).rstrip("s"))
    return wait
