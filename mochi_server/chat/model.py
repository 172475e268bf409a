"""The model that a conversation is held with, and what it is refused for."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ContextOverflow, ThinkingNotSupported, ToolsNotSupported
from ..providers.base import ModelInfo, Provider, Think
from ..services.history import estimate
from ..sessions import ChatSession
from .stored import system_of

DENSEST_TEXT = 6.0
"""Characters a token that hardly any text exceeds: what overflows even so surely does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """A model that is there. The checks refuse plainly what is known to fail, before a turn."""

    full_name: str
    """As sessions have it: with the provider's alias where that is not the default."""
    name: str
    """The provider's own name."""
    info: ModelInfo
    provider: Provider

    def check_tools(self) -> None:
        """Refuse tools for a model that is known not to call any.

        Raises:
            ToolsNotSupported: it does not.
        """
        unable = self.info.capabilities and "tools" not in self.info.capabilities
        if unable or not self.provider.capabilities.tools:
            raise ToolsNotSupported(model=self.full_name)

    def check_thinking(self, think: Think) -> None:
        """Refuse thinking for a model that is known not to do it.

        Raises:
            ThinkingNotSupported: it is asked for, and the model does not.
        """
        unable = self.info.capabilities and "thinking" not in self.info.capabilities
        if think and (unable or not self.provider.capabilities.thinking):
            raise ThinkingNotSupported(model=self.full_name)

    def check_length(self, session: ChatSession, message: str | None) -> None:
        """Refuse a message that cannot fit the model by any count.

        Raises:
            ContextOverflow: it is too long.
        """
        longest = self.info.context_length
        if message is None or not longest:
            return
        tokens = estimate({"content": message}, DENSEST_TEXT)
        if (system := system_of(session)) is not None:
            tokens += estimate(system, DENSEST_TEXT)
        if tokens > longest:
            raise ContextOverflow(
                model=self.full_name, estimated_tokens=tokens, context_length=longest
            )
