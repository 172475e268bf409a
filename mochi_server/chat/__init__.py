"""Conversations: the engine of turns, its tasks and logs, and the service that opens them."""

from .conversation import Limits, Notes
from .service import ChatService
from .turn import Turn
from .turns import LogReader, TurnLog, TurnRegistry

__all__ = ["ChatService", "Limits", "LogReader", "Notes", "Turn", "TurnLog", "TurnRegistry"]
