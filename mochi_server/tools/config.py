"""When a person is asked about a call of a tool, with the settings of a session that say so."""

from __future__ import annotations

from pydantic import JsonValue

from ..sessions.types import ToolExecutionPolicy, ToolSettings
from .base import Tool

__all__ = ["ToolExecutionPolicy", "ToolSettings", "needs_confirmation"]


def needs_confirmation(policy: JsonValue, tool: Tool) -> bool:
    """Tell whether a call waits for a person's decision.

    ``confirm_destructive`` asks unless the tool is known to be harmless: where nobody says so, it
    counts as destructive. A policy that is not known here asks as well.
    """
    if policy == ToolExecutionPolicy.CONFIRM_DESTRUCTIVE:
        return tool.destructive is not False
    return policy != ToolExecutionPolicy.NEVER_CONFIRM
