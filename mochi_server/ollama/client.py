"""The client for scripts and threads; :mod:`~.async_client` has those for asyncio.

They are the clients of the package ``ollama`` with this project's errors and time limits. Turns go
through :mod:`~.stream`. The methods ``chat`` and ``chat_stream`` cannot send ``truncate``: Ollama
drops the oldest messages of a history that is too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import httpx
import ollama
import orjson

from ..core.limits import httpx_limits
from ..errors import MochiError, ModelNotFound, OllamaError, OllamaUnreachable, ProviderError
from ..protocol.completions import ModelInfo, Think
from .failures import failure_of_answer, failure_of_line, incomplete
from .transport import Address, TimeLimits, address_of
from .types import can_chat, chat_messages, chat_options, info_of

DEFAULT_HOST = "http://localhost:11434"
CONNECTIONS_KEPT = 20


class OllamaClient:
    """A client for scripts and worker threads; never for the event loop.

    ::

        with OllamaClient(host="http://localhost:11434") as client:
            for chunk in client.chat_stream("qwen3:14b", [{"role": "user", "content": "Hi"}]):
                print(chunk.message.content, end="")

    Every method raises this project's errors: OllamaUnreachable, OllamaError, ModelNotFound,
    ThinkingNotSupported, ContextOverflow, ProviderBusy.
    """

    def __init__(self, host: str = DEFAULT_HOST, *, limits: TimeLimits | None = None) -> None:
        address = address_of(host)
        self.host = address.url
        options = client_options(address, limits or TimeLimits(), is_async=False)
        self._client = ollama.Client(address.url, **options)

    def list_models(self) -> list[ModelInfo]:
        """Return the models that can chat, most recently changed first."""
        with translated(self.host):
            entries = self._client.list().models
        models = []
        for entry in entries:
            with suppress(ModelNotFound, OllamaError):  # deleted or broken; others are still good
                details = self.show_model_details(str(entry.model))
                models.append(model_info(str(entry.model), details, entry))
        return [model for model in models if can_chat(model)]

    def show_model_details(self, name: str) -> ollama.ShowResponse:
        with translated(self.host, model=name):
            return self._client.show(name)

    def get_model_info(self, name: str) -> ModelInfo:
        return model_info(name, self.show_model_details(name))

    def check_connection(self) -> bool:
        with suppress(ProviderError), translated(self.host):
            self._client.list()
            return True
        return False

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> ollama.ChatResponse:
        """Return the whole reply; messages may be stored ones."""
        with translated(self.host, model=model):
            response = self._client.chat(
                **chat_arguments(model, messages, tools, think, context_window)
            )
            return cast("ollama.ChatResponse", response)

    def chat_stream(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> Iterator[ollama.ChatResponse]:
        """Yield the reply as it is generated; the last chunk has ``done`` true.

        Raises:
            OllamaError: the reply ended without that chunk, too.
        """
        arguments = chat_arguments(model, messages, tools, think, context_window)
        finished = False
        with translated(self.host, model=model):
            for chunk in self._client.chat(**arguments, stream=True):
                finished = bool(chunk.done)
                yield chunk
        if not finished:
            raise incomplete("ended without finishing")

    def close(self) -> None:
        self._client.close()  # type: ignore[no-untyped-call] # the library's

    def __enter__(self) -> OllamaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def chat_arguments(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    think: Think,
    context_window: int | None,
) -> dict[str, Any]:
    return {
        "model": model,
        "messages": chat_messages(messages),
        "tools": tools,
        "think": think,
        "options": chat_options(num_ctx=context_window),
    }


def client_options(
    address: Address, limits: TimeLimits, *, is_async: bool = True
) -> dict[str, Any]:
    """Return arguments for httpx: login, limits of time and size, many connections, no proxies."""
    bounds = httpx_limits(is_async=is_async, has_events=False)
    return {
        **bounds,
        "headers": {**bounds["headers"], **address.headers},
        "timeout": httpx.Timeout(limits.first_byte, connect=limits.connect, pool=None),
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=CONNECTIONS_KEPT),
        "trust_env": False,
    }


@contextmanager
def translated(host: str, *, model: str | None = None) -> Iterator[None]:
    """Turn what the library raises into this project's errors."""
    try:
        yield
    except MochiError:
        raise
    except ollama.ResponseError as error:
        raise _failure_of(error, host, model) from error
    except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as error:
        raise OllamaUnreachable(host=host) from error
    except httpx.TimeoutException as error:
        text = f"Ollama at {host} did not answer in time."
        raise OllamaUnreachable(text, details={"host": host}) from error
    except httpx.HTTPError as error:
        raise incomplete("broke off: the connection was lost") from error
    except (ValueError, AttributeError, TypeError) as error:
        # The library raises these for lines that are not JSON, or not objects.
        raise OllamaError(f"{host} does not answer as Ollama does: {error}") from error


def _failure_of(error: ollama.ResponseError, host: str, model: str | None) -> MochiError:
    text: Any = error.error
    if error.status_code < 0:
        return failure_of_line({"error": text}, model=model)
    is_plain = isinstance(text, str) and (not text or text.startswith("<"))
    body = text.encode() if is_plain else orjson.dumps({"error": text})
    return failure_of_answer(error.status_code, body, model=model, host=host)


def model_info(
    name: str, shown: ollama.ShowResponse, listed: ollama.ListResponse.Model | None = None
) -> ModelInfo:
    return info_of(
        name,
        listed=None if listed is None else listed.model_dump(exclude_none=True),
        shown={**shown.model_dump(exclude_none=True), "model_info": shown.modelinfo or {}},
    )
