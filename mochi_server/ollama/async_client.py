"""Clients for asyncio, by the packages ``ollama`` and ``ollama-instructor``.

The provider's structured output goes through the second; turns go through :mod:`~.stream`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import ollama
from ollama_instructor import OllamaInstructorAsync
from pydantic import BaseModel, ValidationError

from ..core.limits import complete_json
from ..errors import OllamaError, ProviderError
from ..protocol.completions import ModelInfo, Think
from .client import DEFAULT_HOST, chat_arguments, client_options, model_info, translated
from .failures import incomplete
from .transport import Address, PerLoop, TimeLimits, address_of, run_for_each
from .types import as_duration, can_chat, chat_messages, chat_options

SECOND_TRY: Final = {"seed": 1, "temperature": 1.2}
"""Options of the second request, if a reply does not validate; Ollama's temperature is 0.8."""


class AsyncOllamaClient:
    """``OllamaClient`` for asyncio; usable from several event loops, one after the other.

    Closing the generator of ``chat_stream`` closes its connection.
    """

    def __init__(self, host: str = DEFAULT_HOST, *, limits: TimeLimits | None = None) -> None:
        address = address_of(host)
        self.host = address.url
        options = client_options(address, limits or TimeLimits())
        self._clients = PerLoop(lambda: ollama.AsyncClient(address.url, **options))

    async def list_models(self) -> list[ModelInfo]:
        with translated(self.host):
            entries = (await self._clients.get().list()).models
        models: dict[str, ModelInfo] = {}

        async def show(entry: ollama.ListResponse.Model) -> None:
            name = str(entry.model)
            models[name] = model_info(name, await self.show_model_details(name), entry)

        await run_for_each(show, [entry for entry in entries if entry.model])
        ordered = [models[entry.model] for entry in entries if entry.model in models]
        return [model for model in ordered if can_chat(model)]

    async def show_model_details(self, name: str) -> ollama.ShowResponse:
        with translated(self.host, model=name):
            return await self._clients.get().show(name)

    async def get_model_info(self, name: str) -> ModelInfo:
        return model_info(name, await self.show_model_details(name))

    async def check_connection(self) -> bool:
        with suppress(ProviderError), translated(self.host):
            await self._clients.get().list()
            return True
        return False

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> ollama.ChatResponse:
        with translated(self.host, model=model):
            response = await self._clients.get().chat(
                **chat_arguments(model, messages, tools, think, context_window)
            )
            return cast("ollama.ChatResponse", response)

    async def chat_stream(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        think: Think = False,
        context_window: int | None = None,
    ) -> AsyncGenerator[ollama.ChatResponse, None]:
        arguments = chat_arguments(model, messages, tools, think, context_window)
        finished = False
        with translated(self.host, model=model):
            stream = await self._clients.get().chat(**arguments, stream=True)
            async with aclosing(cast("AsyncGenerator[ollama.ChatResponse]", stream)) as chunks:
                async for chunk in chunks:
                    finished = bool(chunk.done)
                    yield chunk
        if not finished:
            raise incomplete("ended without finishing")

    async def aclose(self) -> None:
        for client in self._clients.take_all():
            await client.close()  # type: ignore[no-untyped-call] # the library's


class AsyncInstructorOllamaClient:
    """A client whose replies have the form of a pydantic class, and are validated."""

    def __init__(
        self,
        host: str | Address = DEFAULT_HOST,
        *,
        limits: TimeLimits | None = None,
        keep_alive: str | None = None,
    ) -> None:
        address = host if isinstance(host, Address) else address_of(host)
        self.host = address.url
        self._keep_alive = None if keep_alive is None else as_duration(keep_alive)
        options = client_options(address, limits or TimeLimits())
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
        """Return the reply whose content validates as ``format``, without what was cut off.

        A reply that does not is asked for once more, so that it can end differently: with another
        seed and temperature, since Ollama answers equal requests alike, and with ``think`` left to
        the server, since with thinking off servers before 0.21.1 forget the form for some models.

        Raises:
            OllamaError: neither reply validates.
        """
        sent = chat_messages(messages)
        options = chat_options(
            num_ctx=context_window, num_predict=max_tokens, temperature=temperature
        )
        client = self._clients.get()
        problem: ValidationError | None = None
        with translated(self.host, model=model):
            for thinks, chosen in ((think, options), (None, options | SECOND_TRY)):
                try:
                    return await client.thinking(thinks).chat_completion(
                        format, model, sent, chosen, self._keep_alive, retries=1
                    )
                except ValidationError as error:  # noqa: PERF203 - two rounds
                    problem = error
        text = f"The reply of {model!r} does not have the form of {format.__name__}."
        raise OllamaError(text, details={"model": model}) from problem

    async def aclose(self) -> None:
        for client in self._clients.take_all():
            await client.close()  # type: ignore[no-untyped-call] # the library's


class _Instructor(OllamaInstructorAsync):
    """The library's client, with the two parameters that ``chat_completion`` cannot pass.

    ``_request`` is a private name of ``ollama`` 0.6, through which every request goes.
    """

    think: Think | None = None

    def thinking(self, think: Think | None) -> _Instructor:
        """Return the same client, connections and all, with this ``think`` in every request."""
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
