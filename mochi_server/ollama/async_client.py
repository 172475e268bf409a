"""The asynchronous clients over the ``ollama`` and ``ollama-instructor`` libraries.

Turns do not go through them (:mod:`mochi_server.ollama.stream` does that); background work and
structured output do.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

import ollama
from ollama_instructor import OllamaInstructorAsync
from pydantic import BaseModel, ValidationError

from ..core.json_limits import complete_json
from ..errors import OllamaError, ProviderError
from ..protocol.completions import ModelInfo, Think
from .address import Address, address_of
from .at_once import for_each
from .client import DEFAULT_HOST
from .failures import incomplete
from .library import client_options, info_from_library, translated
from .per_loop import PerLoop
from .requests import as_duration, chat_messages, chat_options
from .transport import Limits
from .types import can_chat

T = TypeVar("T", bound=BaseModel)

OTHERWISE: Final = {"seed": 1, "temperature": 1.2}
"""Options of a request whose first reply had not the form; Ollama's own temperature is 0.8."""


class AsyncOllamaClient:
    """`OllamaClient` for asyncio; usable from several event loops, one after the other.

    Every method raises this project's errors, as there.
    """

    def __init__(self, host: str = DEFAULT_HOST, *, limits: Limits | None = None) -> None:
        address = address_of(host)
        self.host = address.url
        options = client_options(address, limits or Limits())
        self._clients = PerLoop(lambda: ollama.AsyncClient(address.url, **options))

    async def list_models(self) -> list[ModelInfo]:
        """The models that can chat, most recently changed first."""
        with translated(self.host):
            entries = (await self._clients.get().list()).models
        found: dict[str, ModelInfo] = {}

        async def show(entry: ollama.ListResponse.Model) -> None:
            name = str(entry.model)
            found[name] = info_from_library(name, await self.show_model_details(name), entry)

        await for_each(show, [entry for entry in entries if entry.model])
        models = [found[entry.model] for entry in entries if entry.model in found]
        return [model for model in models if can_chat(model)]

    async def show_model_details(self, name: str) -> ollama.ShowResponse:
        """Everything that the server tells about a model."""
        with translated(self.host, model=name):
            return await self._clients.get().show(name)

    async def get_model_info(self, name: str) -> ModelInfo:
        """One model in our terms."""
        return info_from_library(name, await self.show_model_details(name))

    async def check_connection(self) -> bool:
        """Whether a server answers at the address."""
        try:
            with translated(self.host):
                await self._clients.get().list()
        except ProviderError:
            return False
        return True

    async def chat(
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
            return await self._clients.get().chat(
                model,
                chat_messages(messages),
                tools=tools,
                think=think,
                options=chat_options(num_ctx=context_window),
            )

    async def chat_stream(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> AsyncGenerator[ollama.ChatResponse, None]:
        """The reply as it is generated; the last chunk has ``done`` true.

        Closing the generator closes the connection.

        Raises:
            OllamaError: the reply ended without that chunk, too.
        """
        finished = False
        with translated(self.host, model=model):
            chunks = await self._clients.get().chat(
                model,
                chat_messages(messages),
                tools=tools,
                stream=True,
                think=think,
                options=chat_options(num_ctx=context_window),
            )
            generator = cast("AsyncGenerator[ollama.ChatResponse, None]", chunks)
            async with aclosing(generator):
                async for chunk in generator:
                    finished = bool(chunk.done)
                    yield chunk
        if not finished:
            raise incomplete("ended without finishing")

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients.take_all():
            await client.close()  # type: ignore[no-untyped-call] # the library's


class AsyncInstructorOllamaClient:
    """Replies in the form of a pydantic class, validated; by ``ollama-instructor``."""

    def __init__(
        self,
        host: str | Address = DEFAULT_HOST,
        *,
        limits: Limits | None = None,
        keep_alive: str | None = None,
    ) -> None:
        address = host if isinstance(host, Address) else address_of(host)
        self.host = address.url
        self._keep_alive = None if keep_alive is None else as_duration(keep_alive)
        options = client_options(address, limits or Limits())
        self._clients = PerLoop(lambda: _Instructor(address.url, **options))

    async def structured_response(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        format: type[BaseModel],  # noqa: A002 - Ollama's word
        *,
        think: Think = False,
        context_window: int | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> ollama.ChatResponse:
        """The reply whose content validates as ``format``; what was cut off is left out of it.

        A reply that does not is asked for once more, so that it can end differently: with another
        seed and temperature, since Ollama answers equal requests alike, and with ``think`` left to
        the server, since with thinking off servers before 0.21.1 forget the form for some models.

        Raises:
            OllamaError: neither reply validates.
        """
        options = chat_options(
            num_ctx=context_window, num_predict=max_tokens, temperature=temperature
        )
        try:
            return await self._ask(model, messages, format, options, think=think)
        except _Malformed:
            return await self._ask(model, messages, format, options | OTHERWISE, think=None)

    async def _ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        shape: type[BaseModel],
        options: Mapping[str, Any],
        *,
        think: Think | None,
    ) -> ollama.ChatResponse:
        client = self._clients.get().thinking(think)
        sent = chat_messages(messages)
        with translated(self.host, model=model):
            try:
                return await client.chat_completion(
                    shape, model, sent, options, self._keep_alive, retries=1
                )
            except ValidationError as error:
                raise _Malformed(
                    f"The reply of {model!r} does not have the form of {shape.__name__}.",
                    details={"model": model},
                ) from error

    async def structured_result(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        format: type[T],  # noqa: A002 - Ollama's word
        *,
        think: Think = False,
        context_window: int | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> T:
        """The same as an instance of ``format``."""
        response = await self.structured_response(
            model,
            messages,
            format,
            think=think,
            context_window=context_window,
            max_tokens=max_tokens,
            temperature=temperature,
        )
        return format.model_validate_json(response.message.content or "")

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients.take_all():
            await client.close()  # type: ignore[no-untyped-call] # the library's


class _Malformed(OllamaError):
    """The reply does not validate."""


class _Instructor(OllamaInstructorAsync):
    """The library's client, with the two parameters that ``chat_completion`` cannot pass."""

    think: Think | None = None

    def thinking(self, think: Think | None) -> _Instructor:
        """The same client, connections and all, with this ``think`` in every request."""
        twin = copy.copy(self)
        twin.think = think
        return twin

    async def chat(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the library's
        response = await super().chat(*args, **kwargs, think=self.think)
        # Ollama ends a reply after 30 equal tokens, with status 200: small models that are held to
        # a form may write white space after the last text until then.
        response.message.content = complete_json(response.message.content or "")
        return response

    async def _request(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the library's
        if "json" in kwargs:
            kwargs["json"] = {**kwargs["json"], "truncate": False}
        return await super()._request(*args, **kwargs)
