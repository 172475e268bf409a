"""Which tools a session offers, and when a person is asked about their calls."""

from ..sessions.types import ToolExecutionPolicy, ToolSettings

__all__ = ["ToolExecutionPolicy", "ToolSettings"]
