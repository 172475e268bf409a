"""Chat: turns, their conversations, tool calls and logs, and the service that opens them."""

from ..services.requests import RequestLimits
from .conversation import Conversations, StoredMessages
from .log import LogReader, TurnLog
from .service import ChatService
from .status import StatusService
from .turn import Turn, TurnRegistry

__all__ = [
    "ChatService",
    "Conversations",
    "LogReader",
    "RequestLimits",
    "StatusService",
    "StoredMessages",
    "Turn",
    "TurnLog",
    "TurnRegistry",
]
