"""The synchronous client, for scripts and worker threads; never for the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import ollama

from ..errors import ModelNotFound, OllamaError, ProviderError
from ..protocol.completions import ModelInfo, Think
from .address import address_of
from .failures import incomplete
from .library import client_options, info_from_library, translated
from .requests import chat_messages, chat_options
from .transport import Limits
from .types import can_chat

DEFAULT_HOST = "http://localhost:11434"


class OllamaClient:
    """One Ollama server, without a mochi-server.

    ::

        with OllamaClient(host="http://localhost:11434") as client:
            for chunk in client.chat_stream("qwen3:14b", [{"role": "user", "content": "Hi"}]):
                print(chunk.message.content, end="")

    Every method raises this project's errors: OllamaUnreachable, OllamaError, ModelNotFound,
    ThinkingNotSupported, ContextOverflow, ProviderBusy. The library under it cannot send
    ``truncate``: the server drops the oldest messages of a history that is too long.
    """

    def __init__(self, host: str = DEFAULT_HOST, *, limits: Limits | None = None) -> None:
        address = address_of(host)
        self.host = address.url
        self._client = ollama.Client(
            address.url, **client_options(address, limits or Limits(), is_async=False)
        )

    def list_models(self) -> list[ModelInfo]:
        """The models that can chat, most recently changed first."""
        with translated(self.host):
            entries = self._client.list().models
        found = [self._info(entry) for entry in entries if entry.model]
        return [model for model in found if model is not None and can_chat(model)]

    def _info(self, entry: ollama.ListResponse.Model) -> ModelInfo | None:
        name = str(entry.model)
        try:
            return info_from_library(name, self.show_model_details(name), entry)
        except (ModelNotFound, OllamaError):  # deleted or broken; the others are still good
            return None

    def show_model_details(self, name: str) -> ollama.ShowResponse:
        """Everything that the server tells about a model."""
        with translated(self.host, model=name):
            return self._client.show(name)

    def get_model_info(self, name: str) -> ModelInfo:
        """One model in our terms."""
        return info_from_library(name, self.show_model_details(name))

    def check_connection(self) -> bool:
        """Whether a server answers at the address."""
        try:
            with translated(self.host):
                self._client.list()
        except ProviderError:
            return False
        return True

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> ollama.ChatResponse:
        """The whole reply; messages may be stored ones."""
        with translated(self.host, model=model):
            return self._client.chat(
                model,
                chat_messages(messages),
                tools=tools,
                think=think,
                options=chat_options(num_ctx=context_window),
            )

    def chat_stream(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> Iterator[ollama.ChatResponse]:
        """The reply as it is generated; the last chunk has ``done`` true.

        Raises:
            OllamaError: the reply ended without that chunk, too.
        """
        finished = False
        with translated(self.host, model=model):
            for chunk in self._client.chat(
                model,
                chat_messages(messages),
                tools=tools,
                stream=True,
                think=think,
                options=chat_options(num_ctx=context_window),
            ):
                finished = bool(chunk.done)
                yield chunk
        if not finished:
            raise incomplete("ended without finishing")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()  # type: ignore[no-untyped-call] # the library's

    def __enter__(self) -> OllamaClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
