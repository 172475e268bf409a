"""Storages of session files."""

from .base import Entry, SessionStorage, check_session_id
from .json_files import JSONFileStorage
from .memory import MemoryStorage

__all__ = ["Entry", "JSONFileStorage", "MemoryStorage", "SessionStorage", "check_session_id"]
