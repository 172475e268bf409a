"""A model that a turn asks, with checks of what it cannot do."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.media import IMAGES
from ..errors import (
    AttachmentUnsupported,
    ContextOverflow,
    ImagesNotSupported,
    JSONObject,
    ThinkingNotSupported,
    ToolsNotSupported,
)
from ..protocol.messages import UserMessage
from ..providers.base import ModelInfo, Provider, Think
from .attachments import Readable, attached_tokens
from .history import estimate

DENSEST_TEXT = 6.0
"""Characters a token that hardly any text exceeds: what overflows even so surely does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """A model that exists, with checks that refuse what is known to fail."""

    full_name: str
    """Name in sessions: with the provider's alias where that is not the default."""
    name: str
    """The provider's own name."""
    info: ModelInfo
    provider: Provider

    @property
    def can_call_tools(self) -> bool:
        """Whether it is not known that the model cannot call tools."""
        return self.info.can_call_tools and self.provider.capabilities.tools

    def check_tools(self) -> None:
        """Refuse tools for a model that is known not to call any."""
        if not self.can_call_tools:
            raise ToolsNotSupported(model=self.full_name)

    @property
    def may_think(self) -> bool:
        """Whether it is not known that the model cannot think."""
        unable = self.info.capabilities and "thinking" not in self.info.capabilities
        return self.provider.capabilities.thinking and not unable

    def decide_thinking(self, think: Think | None, *, unasked: bool) -> Think | None:
        """Return how much the model thinks; None: as it does where it is not told.

        Args:
            think: What somebody has said; None: nobody has.
            unasked: Whether it then does what its provider lets it do by default.

        Raises:
            ThinkingNotSupported: it is known not to think, and shall.
        """
        if think is None:
            thinks_unasked = self.may_think and self.provider.capabilities.thinks_unasked
            return True if unasked and thinks_unasked else None
        self.check_thinking(think)
        return think

    def check_thinking(self, think: Think | None) -> None:
        """Refuse thinking for a model that is known not to do it."""
        if think and not self.may_think:
            raise ThinkingNotSupported(model=self.full_name)

    @property
    def readable(self) -> Readable:
        """What the model can read beside texts; where it is not known, it shall say so itself."""
        capabilities = self.info.capabilities
        return Readable(
            images=not capabilities or "vision" in capabilities,
            documents=self.provider.capabilities.documents,
            result_images="vision" in capabilities,
        )

    def check_attachments(self, message: JSONObject) -> None:
        """Refuse a message with a file that the model is known not to read."""
        if (entry := self.readable.refused(message)) is None:
            return
        if entry.get("media_type") in IMAGES:
            raise ImagesNotSupported(model=self.full_name)
        raise AttachmentUnsupported(
            name=entry.get("name") or "file", reason=f"model {self.full_name!r} reads no PDF files"
        )

    def check_length(self, system: JSONObject | None, message: UserMessage) -> None:
        """Refuse a message that cannot fit the model by any count, with this system message."""
        longest = self.info.context_length
        if not longest:
            return
        stored = message.as_stored()
        tokens = estimate(stored, DENSEST_TEXT) - attached_tokens(stored)  # they may be fewer
        if system is not None:
            tokens += estimate(system, DENSEST_TEXT)
        if tokens > longest:
            raise ContextOverflow(
                model=self.full_name, estimated_tokens=tokens, context_length=longest
            )
