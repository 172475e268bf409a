"""The provider ``test``: the OpenAI-compatible one, with a transport that reaches nothing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from ..errors import JSONObject
from ..protocol.completions import ModelInfo, ModelRequest
from ..providers.common.errors import not_installed
from ..providers.openai.provider import OpenAICompatibleProvider
from .models import listed_models, model_info
from .openai_transport import BASE_URL, CONVERSATION, scripted_client
from .reply import text_of

if TYPE_CHECKING:
    from pydantic import JsonValue


class ScriptedProvider(OpenAICompatibleProvider):
    """A provider that has a model of every name, which replies as the message's script says.

    Args:
        alias: Name of the provider.
        words_per_second: Pace of the replies; 0 for none.
        cancel_after_words: Where every reply breaks off; None for complete ones.
        listed: Whether the list of models has some; any name works either way.
    """

    def __init__(
        self,
        alias: str,
        *,
        words_per_second: float = 50,
        cancel_after_words: int | None = None,
        listed: bool = True,
    ) -> None:
        super().__init__(alias, base_url=BASE_URL, attempts=1)
        self._pace = words_per_second
        self._cancel = cancel_after_words
        self._is_listed = listed

    def _http(self) -> Any:  # noqa: ANN401 - as in the base class
        return scripted_client(
            self._sdk, words_per_second=self._pace, cancel_after_words=self._cancel
        )

    def extra_body(self, request: ModelRequest) -> JSONObject:
        """Add the messages one by one, as the wire joins neighbours of one role."""
        messages = [{"role": each["role"], "content": text_of(each)} for each in request.messages]
        return {CONVERSATION: cast("list[JsonValue]", messages)}

    async def prepare(self) -> None:
        """Check that the package ``openai`` is there, without importing it.

        Raises:
            ProviderNotConfigured: It is missing.
        """
        if not await self.check():
            raise not_installed(self.alias, self.package, self.extra)

    async def list_models(self) -> list[ModelInfo]:
        """Return the listed models.

        Raises:
            ProviderNotConfigured: The package ``openai`` is missing.
        """
        if not self._is_listed:
            return []
        await self._client()
        return listed_models(self.alias)

    async def show_model(self, name: str) -> ModelInfo:
        return model_info(name, self.alias)

    async def check(self) -> bool:
        return find_spec("openai") is not None
