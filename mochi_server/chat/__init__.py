"""Conversations: the engine of turns, its tasks and logs, and the service that opens them."""

from .conversation import Limits, Notes
from .service import ChatService
from .turn import Turn
from .turn_log import LogReader, TurnLog
from .turns import TurnRegistry

__all__ = ["ChatService", "Limits", "LogReader", "Notes", "Turn", "TurnLog", "TurnRegistry"]
