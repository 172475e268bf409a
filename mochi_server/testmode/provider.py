"""The provider ``test``: the OpenAI-compatible one, with a transport that reaches nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from ..errors import JSONObject
from ..protocol.completions import ModelInfo, ModelRequest
from ..protocol.files import files_of
from ..providers.common.errors import not_installed
from ..providers.common.http import http_library_of
from ..providers.openai import OpenAICompatibleProvider
from .chunks import Abort, CallDelta, Delta, End, ScriptedChunk, first_audible, paced
from .reply import (
    CREATED,
    FILES,
    ReplyRequest,
    compose_async,
    listed_models,
    model_info,
    text_of,
    tokens_of,
)
from .samples import NoExample, stable_hash, vector_of
from .script import BadScript, ScriptedError

if TYPE_CHECKING:
    from pydantic import JsonValue

BASE_URL: Final = "http://test.invalid/v1"
"""Where requests seem to go; a name that no resolver knows."""

_PATH: Final = "/v1/chat/completions"
_EMBEDDINGS_PATH: Final = "/v1/embeddings"
_SSE: Final = {"Content-Type": "text/event-stream; charset=utf-8"}


def scripted_client(
    sdk: ModuleType, *, words_per_second: float, cancel_after_words: int | None
) -> Any:  # noqa: ANN401 - of the SDK's own library
    """Return an HTTP client that opens no socket, for the module ``openai``."""
    library = http_library_of(sdk)
    responses = ScriptedResponses(library, words_per_second, cancel_after_words)
    transport = library.MockTransport(responses.respond)
    return sdk.DefaultAsyncHttpxClient(transport=transport, trust_env=False)


class ScriptedResponses:
    """Answers requests in the types of an HTTP library."""

    def __init__(
        self, library: ModuleType, words_per_second: float, cancel_after_words: int | None
    ) -> None:
        self._library = library
        self._pace = words_per_second
        self._cancel = cancel_after_words
        self._stream: Any = type(
            "ScriptedStream",
            (library.AsyncByteStream,),
            {"__init__": _keep, "__aiter__": _iterate, "aclose": _close},
        )

    async def respond(self, request: Any) -> Any:  # noqa: ANN401 - the library's
        body = orjson.loads(request.content or b"{}")
        if request.url.path == _EMBEDDINGS_PATH:
            return self._library.Response(200, json=embeddings_of(body))
        if request.url.path != _PATH or not body.get("stream"):
            return self._refusal("Test mode has streams of chat completions only.")
        try:
            chunks = await compose_async(
                reply_request(body), self._cancel, size=len(request.content)
            )
        except (BadScript, NoExample) as problem:
            return self._refusal(str(problem))
        paced_chunks = paced(chunks, self._pace)
        first = await first_audible(paced_chunks)
        if isinstance(first, Abort) and first.failure is not None:
            await paced_chunks.aclose()
            return self._failed(first.failure)
        if isinstance(first, Abort) and first.kind == "disconnect":
            await paced_chunks.aclose()
            raise self._library.RemoteProtocolError(
                "Server disconnected without sending a response.", request=request
            )
        stream = OpenAIStream(body, f"{stable_hash(request.content.decode()):016x}")
        parts = self._encoded(first, paced_chunks, stream, request)
        return self._library.Response(200, headers=_SSE, stream=self._stream(parts, paced_chunks))

    async def _encoded(
        self,
        first: ScriptedChunk,
        rest: AsyncGenerator[ScriptedChunk, None],
        stream: OpenAIStream,
        request: Any,  # noqa: ANN401 - the library's
    ) -> AsyncGenerator[bytes, None]:
        yield stream.encode(first)
        async with aclosing(rest) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Abort) and chunk.kind == "disconnect":
                    raise self._library.RemoteProtocolError(
                        "peer closed connection without sending complete message body",
                        request=request,
                    )
                if data := stream.encode(chunk):
                    yield data

    def _failed(self, failure: ScriptedError) -> Any:  # noqa: ANN401 - the library's
        wait = failure.retry_after
        headers = {} if wait is None else {"Retry-After": str(wait)}
        return self._library.Response(failure.status, headers=headers, json=error_body(failure))

    def _refusal(self, text: str) -> Any:  # noqa: ANN401 - the library's
        error = {"message": text, "type": "invalid_request_error", "code": None}
        return self._library.Response(400, json={"error": error})


def _keep(stream: Any, *generators: AsyncGenerator[Any, None]) -> None:  # noqa: ANN401
    stream.generators = generators


def _iterate(stream: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
    parts: AsyncIterator[bytes] = stream.generators[0]
    return parts


async def _close(stream: Any) -> None:  # noqa: ANN401
    for generator in stream.generators:  # a body that is never read does not close them
        await generator.aclose()


CONVERSATION: Final = "conversation"
"""A field of the test provider's requests: the messages before any were joined for the wire."""

DONE: Final = b"data: [DONE]\n\n"


def reply_request(body: Mapping[str, Any]) -> ReplyRequest:
    response_format = body.get("response_format") or {}
    schema = response_format.get("json_schema", {}).get("schema")
    if response_format.get("type") == "json_object":
        schema = {"type": "object"}
    conversation = body.get(CONVERSATION) or body.get("messages", ())
    messages = [message for message in conversation if isinstance(message, dict)]
    return ReplyRequest(
        messages=messages,
        tools=body.get("tools") or (),
        must_call=body.get("tool_choice") == "required",
        schema=schema,
        thinks="thinking" in model_info(str(body.get("model"))).capabilities,
    )


def embeddings_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return vectors that follow from the texts."""
    texts, dimensions = body["input"], body.get("dimensions") or 0
    tokens = sum(map(tokens_of, texts))
    return {
        "object": "list",
        "model": body["model"],
        "data": [
            {"object": "embedding", "index": index, "embedding": vector_of(text, dimensions)}
            for index, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def error_body(failure: ScriptedError) -> dict[str, Any]:
    """Return an error as the body of a response or an event."""
    kind = "rate_limit_error" if failure.status == 429 else "server_error"  # noqa: PLR2004
    return {"error": {"message": failure.message, "type": kind, "code": failure.code}}


class OpenAIStream:
    """Encodes the chunks of one stream; ``name`` becomes a part of the completion's id."""

    def __init__(self, body: Mapping[str, Any], name: str) -> None:
        self._base = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": body.get("model"),
        }
        self._counts = bool((body.get("stream_options") or {}).get("include_usage"))
        self._begun: set[int] = set()

    def encode(self, chunk: ScriptedChunk) -> bytes:
        """Return the events of a chunk; none for a pause, nor for an abort that is no error."""
        match chunk:
            case Delta():
                return self._delta(chunk.choice, {chunk.kind: chunk.text})
            case CallDelta():
                return self._delta(chunk.choice, {"tool_calls": [_call(chunk)]})
            case Abort(failure=ScriptedError() as failure):
                return _event(error_body(failure))
            case End():
                return self._end(chunk)
            case _:
                return b""

    def _delta(self, choice: int, delta: dict[str, Any]) -> bytes:
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", **delta}
        return self._choice(choice, delta, None)

    def _choice(
        self, choice: int, delta: dict[str, Any], reason: str | None, **more: str | None
    ) -> bytes:
        entry = {"index": choice, "delta": delta, "finish_reason": reason, **more}
        return _event({**self._base, "choices": [entry]})

    def _end(self, end: End) -> bytes:
        more = {} if end.stop_sequence is None else {"stop_reason": end.stop_sequence}
        parts = [self._choice(choice, {}, reason, **more) for choice, reason in end.reasons]
        if self._counts:
            usage = {
                "prompt_tokens": end.prompt_tokens,
                "completion_tokens": end.completion_tokens,
                "total_tokens": end.prompt_tokens + end.completion_tokens,
            }
            parts.append(_event({**self._base, "choices": [], "usage": usage}))
        return b"".join([*parts, DONE])


def _call(piece: CallDelta) -> dict[str, Any]:
    if piece.name is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)


class ScriptedProvider(OpenAICompatibleProvider):
    """A provider that has a model of every name, which replies as the message's script says.

    Args:
        alias: Name of the provider.
        words_per_second: Pace of the replies; 0 for none.
        cancel_after_words: Where every reply breaks off; None for complete ones.
        listed: Whether the list of models has some; any name works either way.
    """

    attempts = 1

    def __init__(
        self,
        alias: str,
        *,
        words_per_second: float = 50,
        cancel_after_words: int | None = None,
        listed: bool = True,
    ) -> None:
        super().__init__(alias, base_url=BASE_URL)
        self._pace = words_per_second
        self._cancel = cancel_after_words
        self._is_listed = listed

    def _http(self) -> Any:  # noqa: ANN401 - as in the base class
        return scripted_client(
            self._sdk, words_per_second=self._pace, cancel_after_words=self._cancel
        )

    def extra_body(self, request: ModelRequest) -> JSONObject:
        """Add the messages one by one, as the wire joins neighbours of one role."""
        messages = [
            {"role": each["role"], "content": text_of(each), FILES: len(files_of(each))}
            for each in request.messages
        ]
        return {CONVERSATION: cast("list[JsonValue]", messages)}

    async def prepare(self) -> None:
        """Check, without importing it, that the package ``openai`` is there."""
        if not await self.check():
            raise not_installed(self.alias, self.package, self.extra)

    async def list_models(self) -> list[ModelInfo]:
        if not self._is_listed:
            return []
        await self._client()
        return listed_models(self.alias)

    async def show_model(self, name: str) -> ModelInfo:
        return model_info(name, self.alias)

    async def check(self) -> bool:
        return find_spec("openai") is not None
