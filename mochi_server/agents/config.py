"""The agents that a session may use."""

from ..sessions.types import AgentSettings

__all__ = ["AgentSettings"]
