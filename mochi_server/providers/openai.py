"""OpenAI and Azure, and any server of one's own that speaks their chat completions."""

from __future__ import annotations

import re
from typing import Final

from pydantic import SecretStr

from ..protocol.response_format import ResponseFormat
from .base import ModelInfo, ModelRequest
from .chat_completions.provider import OPENAI_URL, ChatCompletionsProvider
from .common.http import split_address

_OPENAI: Final = ".api.openai.com"
_AZURE: Final = ".openai.azure.com"

NO_CHAT: Final = re.compile(
    r"(ft:)?[^:]*(embedding|whisper|tts|dall-e|moderation|image|sora|realtime|transcribe|audio"
    r"|babbage|davinci)"
)
"""Matches the models on OpenAI's list that have no chat completions. In the name of a fine-tuned
model, the owner chose what follows the base model."""


class OpenAICompatibleProvider(ChatCompletionsProvider):
    """The models of OpenAI, of Azure, or of another server that speaks their protocol."""

    def __init__(
        self,
        alias: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | str | None = None,
    ) -> None:
        super().__init__(alias, base_url=base_url, api_key=api_key)
        parts = split_address(self._base_url or OPENAI_URL)
        host = f".{parts.hostname}" if parts is not None else ""
        self._is_azure = host.endswith(_AZURE)
        self._is_openai = host.endswith(_OPENAI) or self._is_azure

    def _can_chat(self, name: str) -> bool:
        return not (self._is_openai and NO_CHAT.match(name))

    async def show_model(self, name: str) -> ModelInfo:
        """Return one model. Azure lists models, but runs deployments, whose names are free."""
        return self._info(name) if self._is_azure else await super().show_model(name)

    def _limit(self, request: ModelRequest) -> dict[str, int]:
        # OpenAI's newer models refuse the old name, and most other servers ignore the new one.
        # OpenAI's end a reply with a schema; they may think first, out of sight, which counts.
        if not self._is_openai:
            return super()._limit(request)
        limit = request.max_tokens
        if request.schema is not None:
            limit = request.options.max_tokens
        return {"max_completion_tokens": limit} if limit else {}

    def takes_format(self, name: str, response_format: ResponseFormat, *, tools: bool) -> bool:
        beside_tools = tools and not self._is_openai
        return super().takes_format(name, response_format, tools=beside_tools)
