"""Conversations: the engine of turns, its tasks and logs, and the service that opens them."""

from ..services.requests import Limits
from .conversation import Conversations, Notes
from .log import LogReader, TurnLog
from .service import ChatService
from .status import StatusService
from .turn import Turn, TurnRegistry

__all__ = [
    "ChatService",
    "Conversations",
    "Limits",
    "LogReader",
    "Notes",
    "StatusService",
    "Turn",
    "TurnLog",
    "TurnRegistry",
]
