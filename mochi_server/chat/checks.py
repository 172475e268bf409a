"""What is looked at before a turn begins, while it can still be refused plainly."""

from __future__ import annotations

from ..errors import (
    ContextOverflow,
    ThinkingNotSupported,
    ToolsNotSupported,
)
from ..messages import UserMessage
from ..providers.base import ModelInfo, Provider, Think
from ..services.context_window import learn_window
from ..services.history import estimate
from ..sessions import ChatSession
from .conversation import objects, system_of
from .tool_calls import unanswered

__all__ = ["check_length", "check_thinking", "check_tools", "learn_window", "prepare"]

DENSEST_TEXT = 6.0
"""Characters a token that hardly any text exceeds: what overflows even so surely does."""


def check_tools(model: str, info: ModelInfo, provider: Provider) -> None:
    """Refuse tools for a model that is known not to call any.

    Raises:
        ToolsNotSupported: it does not.
    """
    unable = info.capabilities and "tools" not in info.capabilities
    if unable or not provider.capabilities.tools:
        raise ToolsNotSupported(model=model)


def check_thinking(model: str, info: ModelInfo, think: Think) -> None:
    """Refuse what the model cannot do, while it can still be said plainly.

    Raises:
        ThinkingNotSupported: thinking is asked for, and the model is known not to have it.
    """
    if think and info.capabilities and "thinking" not in info.capabilities:
        raise ThinkingNotSupported(model=model)


def check_length(model: str, info: ModelInfo, session: ChatSession, message: str | None) -> None:
    """Refuse a message that cannot fit the model by any count.

    Raises:
        ContextOverflow: it is too long.
    """
    if message is None or not info.context_length:
        return
    tokens = estimate({"content": message}, DENSEST_TEXT)
    if (system := system_of(session)) is not None:
        tokens += estimate(system, DENSEST_TEXT)
    if tokens > info.context_length:
        raise ContextOverflow(
            model=model, estimated_tokens=tokens, context_length=info.context_length
        )


def prepare(session: ChatSession, message: str | None) -> None:
    """Bring the session to where the model has something to answer.

    Raises:
        EmptyHistory: there is no user message to answer again.
    """
    if message is None:
        session.truncate_after_last_user()
        return
    session.append(*unanswered(objects(session.tail())), UserMessage(content=message))
