"""Chat: turns, their conversations, tool calls and logs, and the service that opens them."""

from ..services.requests import RequestLimits
from .conversations import Conversations
from .runs.log import LogReader, RunLog, StoredMessages
from .runs.registry import RunRegistry
from .service import ChatService
from .status import StatusService
from .turn import Turn

__all__ = [
    "ChatService",
    "Conversations",
    "LogReader",
    "RequestLimits",
    "RunLog",
    "RunRegistry",
    "StatusService",
    "StoredMessages",
    "Turn",
]
