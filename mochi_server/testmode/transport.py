"""An HTTP transport that answers by itself: what OpenAI's SDK gets instead of a network.

The SDK brings its HTTP library, ``httpx`` or ``httpx2`` by its version; both are the same here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import ModuleType
from typing import Any, Final

import orjson

from ..providers.vendor import http_library_of
from .beats import Beat, Cut, first_sound, paced
from .example import NoExample
from .lorem import stable_hash
from .openai_words import OpenAIWords, asked_by, error_body
from .reply import composed
from .script import BadScript, Failure

BASE_URL: Final = "http://test.invalid/v1"
"""Where requests seem to go; a name that no resolver knows."""

_PATH: Final = "/v1/chat/completions"
_SSE: Final = {"Content-Type": "text/event-stream; charset=utf-8"}


def scripted_client(
    sdk: ModuleType, *, words_per_second: float, cancel_after_words: int | None
) -> Any:  # noqa: ANN401 - of the SDK's own library
    """An HTTP client for the SDK that opens no socket.

    Args:
        sdk: the module ``openai``.
        words_per_second: pace of the replies; 0 for none.
        cancel_after_words: where every reply is cut.
    """
    library = http_library_of(sdk)
    answers = Answers(library, words_per_second, cancel_after_words)
    transport = library.MockTransport(answers.answer)
    return sdk.DefaultAsyncHttpxClient(transport=transport, trust_env=False)


class Answers:
    """Answers requests, in the types of an HTTP library."""

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

    async def answer(self, request: Any) -> Any:  # noqa: ANN401 - the library's
        """The response to a request; its body comes as it is read."""
        body = orjson.loads(request.content or b"{}")
        if request.url.path != _PATH or not body.get("stream"):
            return self._refusal("Test mode has streams of chat completions only.")
        try:
            beats = await composed(asked_by(body), self._cancel, size=len(request.content))
        except (BadScript, NoExample) as problem:
            return self._refusal(str(problem))
        said = paced(beats, self._pace)
        first = await first_sound(said)
        if isinstance(first, Cut) and first.failure is not None:
            await said.aclose()
            return self._failed(first.failure)
        if isinstance(first, Cut) and first.kind == "disconnect":
            await said.aclose()
            raise self._library.RemoteProtocolError(
                "Server disconnected without sending a response.", request=request
            )
        words = OpenAIWords(body, f"{stable_hash(request.content.decode()):016x}")
        parts = self._written(first, said, words, request)
        return self._library.Response(200, headers=_SSE, stream=self._stream(parts, said))

    async def _written(
        self,
        first: Beat,
        rest: AsyncGenerator[Beat, None],
        words: OpenAIWords,
        request: Any,  # noqa: ANN401 - the library's
    ) -> AsyncGenerator[bytes, None]:
        yield words.say(first)
        async with aclosing(rest) as beats:
            async for beat in beats:
                if isinstance(beat, Cut) and beat.kind == "disconnect":
                    raise self._library.RemoteProtocolError(
                        "peer closed connection without sending complete message body",
                        request=request,
                    )
                if data := words.say(beat):
                    yield data

    def _failed(self, failure: Failure) -> Any:  # noqa: ANN401 - the library's
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
    for generator in stream.generators:  # a body that nobody reads closes no beats
        await generator.aclose()
