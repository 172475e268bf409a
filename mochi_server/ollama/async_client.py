"""Replies in the form of a pydantic class, by the package ``ollama-instructor``.

The provider's structured output goes through it; turns go through :mod:`~.stream`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import ollama
from ollama_instructor import OllamaInstructorAsync
from pydantic import BaseModel, ValidationError

from ..core.limits import complete_json
from ..errors import OllamaError
from ..protocol.completions import Think
from .client import DEFAULT_HOST, AsyncOllamaClient, client_options, translated
from .transport import Address, PerLoop, TimeLimits, address_of
from .types import as_duration, chat_messages, chat_options

__all__ = ["AsyncInstructorOllamaClient", "AsyncOllamaClient"]

T = TypeVar("T", bound=BaseModel)

SECOND_TRY: Final = {"seed": 1, "temperature": 1.2}
"""Options of the second request, if a reply does not validate; Ollama's temperature is 0.8."""


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
        """Return the reply as an instance of ``format``; see `structured_response`."""
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
