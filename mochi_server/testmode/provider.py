"""The provider ``test``: the OpenAI-compatible one, with a transport that reaches nothing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from ..errors import JSONObject
from ..protocol.completions import ModelInfo, ModelRequest
from ..providers.common.errors import not_installed
from ..providers.openai.provider import OpenAICompatibleProvider
from .models import listed_models, model_info
from .openai_words import CONVERSATION
from .reply import text_of
from .transport import BASE_URL, scripted_client

if TYPE_CHECKING:
    from pydantic import JsonValue


class ScriptedProvider(OpenAICompatibleProvider):
    """Has a model of every name, which answers what the message asks for."""

    def __init__(
        self,
        alias: str,
        *,
        words_per_second: float = 50,
        cancel_after_words: int | None = None,
        listed: bool = True,
    ) -> None:
        """Open nothing yet.

        Args:
            alias: name of the provider.
            words_per_second: pace of the replies; 0 for none.
            cancel_after_words: where every reply is cut; None for whole ones.
            listed: whether the list of models shows some; any name works either way.
        """
        super().__init__(alias, base_url=BASE_URL, attempts=1)
        self._pace = words_per_second
        self._cancel = cancel_after_words
        self._is_listed = listed

    def _http(self) -> Any:  # noqa: ANN401 - as in the base class
        return scripted_client(
            self._sdk, words_per_second=self._pace, cancel_after_words=self._cancel
        )

    def extra_body(self, request: ModelRequest) -> JSONObject:
        """The messages one by one: the wire joins those of one role that follow each other."""
        said = [{"role": found["role"], "content": text_of(found)} for found in request.messages]
        return {CONVERSATION: cast("list[JsonValue]", said)}

    async def prepare(self) -> None:
        """Nothing but a look: where nobody uses it, its package stays out of the memory.

        Raises:
            ProviderNotConfigured: the package is missing that it speaks through.
        """
        if not await self.check():
            raise not_installed(self.alias, self.package, self.extra)

    async def list_models(self) -> list[ModelInfo]:
        """Some names of the many.

        Raises:
            ProviderNotConfigured: the package is missing that it speaks through.
        """
        if not self._is_listed:
            return []
        await self._client()
        return listed_models(self.alias)

    async def show_model(self, name: str) -> ModelInfo:
        """Any."""
        return model_info(name, self.alias)

    async def check(self) -> bool:
        """Whether the package that it speaks through is there."""
        return find_spec("openai") is not None
