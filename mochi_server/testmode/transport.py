"""An HTTP transport that responses by itself, for OpenAI's SDK instead of a network.

The SDK brings its HTTP library, ``httpx`` or ``httpx2`` by its version; both are the same here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import ModuleType
from typing import Any, Final

import orjson

from ..providers.common.http import http_library_of
from .chunks import Abort, ScriptedChunk, first_audible, paced
from .lorem import stable_hash
from .openai_stream import OpenAIStream, error_body, reply_request
from .reply import compose_async
from .schema_example import NoExample
from .script import BadScript, ScriptedError

BASE_URL: Final = "http://test.invalid/v1"
"""Where requests seem to go; a name that no resolver knows."""

_PATH: Final = "/v1/chat/completions"
_SSE: Final = {"Content-Type": "text/event-stream; charset=utf-8"}


def scripted_client(
    sdk: ModuleType, *, words_per_second: float, cancel_after_words: int | None
) -> Any:  # noqa: ANN401 - of the SDK's own library
    """Return an HTTP client for the SDK that opens no socket.

    Args:
        sdk: The module ``openai``.
        words_per_second: Pace of the replies; 0 for none.
        cancel_after_words: Where every reply breaks off.
    """
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
        """Return the response to a request; its body is produced while it is read."""
        body = orjson.loads(request.content or b"{}")
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
