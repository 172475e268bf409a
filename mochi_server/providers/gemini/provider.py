"""Google's models, through the vendor's own SDK.

The SDK is imported at first use, in a thread: it takes more than a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from ...core.aio import in_thread_if
from ...core.json_text import read_json
from ...errors import MochiError, ModelNotFound
from ..base import Capabilities, Chunk, ModelInfo, ModelRequest
from ..common.errors import SPENT, Refusal
from ..common.history import ToolNames
from ..common.http import CONNECT_SECONDS, IDLE_SECONDS, http_options, retry_after, seconds_of
from ..common.values import error_text
from ..vendor import MODEL_CACHE_SECONDS, VendorProvider
from .messages import (
    LEGAL_NAME,
    OPTIONS,
    GeminiReply,
    config_of,
    contents_of,
    thinks_unasked,
    without_ids,
)

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import Model

GEMINI_URL: Final = "https://generativelanguage.googleapis.com"
DEFAULT_MAX_TOKENS: Final = 8192
THINKING_TOKENS: Final = 24576
"""Room for thinking, which the API counts as output, where nothing limits the reply."""
NO_IDS: Final = 'Unknown name "id" at \'contents['
"""Vertex AI's refusal of ids of calls; it is behind some gateways."""
LAST_BYTES: Final = "mochi_last_bytes"
KEPT_BYTES: Final = 16_384
_FINISH_MESSAGE: Final = re.compile(r'"finishMessage":\s*("(?:[^"\\]|\\.)*")')

_stream_responses: ContextVar[list[Any]] = ContextVar("_stream_responses")
"""The HTTP responses of the stream that is being opened."""


class GeminiProvider(VendorProvider["Client"]):
    """The models of one key; ``max_output_tokens`` limits replies, their thinking included."""

    service = "Gemini"
    module = "google.genai"
    package = "google-genai"
    extra = "gemini"
    variable = "GEMINI_API_KEY"
    sdk_error = "errors.APIError"
    capabilities = Capabilities(documents=True, thinks_unasked=True)
    options = OPTIONS | {"stop"}

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
        self._http: Any = None
        self._takes_ids = True
        self._known: dict[str, tuple[float, ModelInfo, int | None]] = {}

    def _connect(self) -> Client:
        # The SDK's own client would wait for ever, and try again after up to ten seconds.
        library = import_module("httpx")
        http = library.AsyncClient(**http_options(library, self._base_url))
        http.event_hooks = {
            "request": [_limit_connect],
            "response": [*http.event_hooks["response"], _collect_response],
        }
        options = {
            "base_url": self._base_url or GEMINI_URL,
            "timeout": int(IDLE_SECONDS * 1000),
            "httpx_async_client": http,
            "retry_options": {"attempts": 1},
        }
        client: Client = self._sdk.Client(
            api_key=self._api_key, vertexai=False, http_options=options
        )
        self._http = http
        return client

    async def list_models(self) -> list[ModelInfo]:
        client = await self._client()
        with self._metadata_request(None):
            pages = await client.aio.models.list(config={"page_size": 1000})
            return [self._remember(model) async for model in pages if _can_chat(model)]

    async def show_model(self, name: str) -> ModelInfo:
        name = _short(name)
        until, model, _ = self._known.get(name, (0.0, None, None))
        if model is not None and until > time.monotonic():
            return model
        if not name.isprintable():  # an address cannot have it
            raise ModelNotFound(model=name)
        client = await self._client()
        with self._metadata_request(name):
            try:
                description = await client.aio.models.get(model=name)
            except ValueError as error:  # signs that no name has, refused by the SDK
                raise ModelNotFound(model=name) from error
        return self._remember(description, name)

    def _remember(self, model: Model, name: str | None = None) -> ModelInfo:
        own = _short(model.name or "")
        info = ModelInfo(
            name=name or own,
            family=own.partition("-")[0],
            capabilities=["completion", "tools", "vision", *["thinking"] * bool(model.thinking)],
            context_length=model.input_token_limit,
            provider=self.alias,
        )
        until = time.monotonic() + MODEL_CACHE_SECONDS
        self._known[info.name] = (until, info, model.output_token_limit)
        return info

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        request = replace(request, model=_short(request.model))
        client = await self._client()
        names = ToolNames(request.tools, LEGAL_NAME)
        info, most = await self._known_of(request.model)
        config: Any = config_of(request, info, names, self.alias)
        config["max_output_tokens"] = self._limit(request, info, most)
        reply = GeminiReply(request.model, names)
        contents = await in_thread_if(
            request.is_long, contents_of, request.messages, request.model, names
        )
        ask = partial(client.aio.models.generate_content_stream, model=request.model, config=config)
        responses: list[Any] = []
        answers: Any = None
        with self._translated(request.model):
            try:
                answers, answer = await self._open_stream(ask, contents, responses)
                while answer is not None:
                    for chunk in reply.add(answer):
                        yield chunk
                    answer = await anext(answers, None)
            finally:  # the SDK leaves its connection to the garbage collector
                for response in responses:
                    await response.aclose()
                if answers is not None:
                    await answers.aclose()
            for chunk in reply.finish(_finish_message(responses[-1])):
                yield chunk

    async def _open_stream(self, ask: Any, contents: Any, responses: list[Any]) -> tuple[Any, Any]:  # noqa: ANN401
        """Return the answers, and the first of them; ask again without ids if those are refused.

        The SDK sends the request only when it is asked for the first answer, which is None where
        there is none.
        """
        token = _stream_responses.set(responses)
        sent = contents if self._takes_ids else without_ids(contents)
        try:
            answers = await ask(contents=sent)
            return answers, await anext(answers, None)
        except self._sdk.errors.APIError as error:
            if sent is not contents or NO_IDS not in _text_of(error):
                raise
            self._takes_ids = False
            answers = await ask(contents=without_ids(contents))
            return answers, await anext(answers, None)
        finally:
            _stream_responses.reset(token)

    async def _known_of(self, name: str) -> tuple[ModelInfo | None, int | None]:
        """Return what is known of a model, and its longest reply; a gateway may tell nothing."""
        with suppress(MochiError):
            await self.show_model(name)
        _, info, most = self._known.get(name, (0.0, None, None))
        return info, most

    def _limit(self, request: ModelRequest, info: ModelInfo | None, most: int | None) -> int:
        unasked = THINKING_TOKENS if thinks_unasked(request, info) else 0
        thinking = THINKING_TOKENS if request.think else unasked
        requested = request.max_tokens + unasked if request.max_tokens else None
        bounds = (self._max_output or DEFAULT_MAX_TOKENS + thinking, requested, most)
        return min(bound for bound in bounds if bound)

    async def _close(self, client: Client) -> None:
        await self._http.aclose()
        client.close()

    def _refusal_of(self, error: Exception) -> Refusal | None:
        if not isinstance(error, self._sdk.errors.APIError):
            return None
        status = error.code if isinstance(error.code, int) else None
        text = _text_of(error) or (str(error) if status is None else f"HTTP {status}")
        codes = (error.status,)
        if _is_spent_for_today(error):
            text, codes = f"the quota of the day is used up: {text}", (*codes, *SPENT)
        return Refusal(text=text, status=status, codes=codes, retry_after=_wait_after(error))


async def _limit_connect(request: Any) -> None:  # noqa: ANN401 - the HTTP library's
    """Limit the time to connect: the SDK has one limit for everything."""
    limits = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {**limits, "connect": CONNECT_SECONDS}


async def _collect_response(response: Any) -> None:  # noqa: ANN401 - the HTTP library's
    if (responses := _stream_responses.get(None)) is not None:
        responses.append(response)
        response.aiter_bytes = partial(_bytes_of, response, response.aiter_bytes)


async def _bytes_of(response: Any, read: Any) -> AsyncGenerator[bytes, None]:  # noqa: ANN401
    last = b""
    async with aclosing(read()) as pieces:
        async for data in pieces:
            last = response.extensions[LAST_BYTES] = (last + data)[-KEPT_BYTES:]
            yield data


def _finish_message(response: Any) -> str:  # noqa: ANN401 - the HTTP library's
    """Return the service's message about the end, which the SDK drops but for Vertex AI."""
    last = response.extensions.get(LAST_BYTES, b"").decode("utf-8", "replace")
    messages = _FINISH_MESSAGE.findall(last)
    return str(read_json(messages[-1])) if messages else ""


def _short(name: str) -> str:
    return name.removeprefix("models/")


def _can_chat(model: Model) -> bool:
    actions = model.supported_actions or ["generateContent"]
    return "generateContent" in actions and "-tts" not in (model.name or "")


def _text_of(error: APIError) -> str:
    return error_text(error.details if error.message is None else error.message)


def _details(error: APIError) -> Iterator[dict[str, Any]]:
    body: Any = error.details
    if isinstance(body, dict):
        body = body.get("error", body)
    details = body.get("details") if isinstance(body, dict) else None
    return (one for one in (details if isinstance(details, list) else ()) if isinstance(one, dict))


def _wait_after(error: APIError) -> int | None:
    """Return the seconds to wait, by the header or the body (``"retryDelay": "34.07s"``)."""
    wait = retry_after(getattr(error.response, "headers", None) or {})
    for detail in _details(error):
        if wait is None and "retryDelay" in detail:
            wait = seconds_of(str(detail["retryDelay"]).rstrip("s"))
    return wait


def _is_spent_for_today(error: APIError) -> bool:
    """Return whether the quota of a day is used up, though the service says to wait seconds."""
    return any("PerDay" in str(detail.get("violations")) for detail in _details(error))
