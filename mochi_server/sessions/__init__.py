"""Conversations, kept as files that the user owns (docs/reference/session-file.md)."""

from ..protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from .catalogue.listing import SessionFilter, SessionPage
from .manager import SessionManager
from .messages import Messages
from .session import ChatSession
from .storage import Entry, JSONFileStorage, MemoryStorage, SessionStorage
from .types import (
    AgentSettings,
    ContextWindowConfig,
    ConversationSummary,
    SessionMetadata,
    ToolExecutionPolicy,
    ToolSettings,
)
from .versions import instant

__all__ = [
    "AgentSettings",
    "AssistantMessage",
    "ChatSession",
    "ContextWindowConfig",
    "ConversationSummary",
    "Entry",
    "JSONFileStorage",
    "MemoryStorage",
    "Messages",
    "SessionFilter",
    "SessionManager",
    "SessionMetadata",
    "SessionPage",
    "SessionStorage",
    "SystemMessage",
    "ToolExecutionPolicy",
    "ToolMessage",
    "ToolSettings",
    "UserMessage",
    "instant",
]
