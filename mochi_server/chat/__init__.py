"""Conversations: the engine of turns, its tasks and logs, and the service that opens them."""

from .conversation import Conversations, Notes
from .requests import Limits
from .service import ChatService
from .status import StatusService
from .turn import Turn
from .turn_log import LogReader, TurnLog
from .turns import TurnRegistry

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
