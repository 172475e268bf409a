"""Every check of the library, in the order of the page."""

from __future__ import annotations

from .extensions import look_at_agents, look_at_tools
from .findings import Check
from .folders import look_at_folders
from .leftovers import look_at_leftovers
from .machine import look_at_machine, look_at_space
from .prompts import look_at_prompts
from .providers import MOST_SECONDS, look_at_providers
from .reach import look_at_reach
from .redis_server import look_at_redis
from .sessions import look_at_sessions
from .variables import look_at_variables
from .windows import look_at_windows

CHECKS = (
    Check(topic="server", look=look_at_machine),
    Check(topic="settings", look=look_at_variables),
    Check(topic="security", look=look_at_reach),
    Check(topic="folders", look=look_at_folders),
    Check(topic="folders", look=look_at_space),
    Check(topic="folders", look=look_at_leftovers),
    Check(topic="models", look=look_at_providers, seconds=MOST_SECONDS),
    Check(topic="models", look=look_at_windows),
    Check(topic="tools", look=look_at_tools),
    Check(topic="agents", look=look_at_agents),
    Check(topic="prompts", look=look_at_prompts),
    Check(topic="sessions", look=look_at_sessions),
    Check(topic="several processes", look=look_at_redis),
)
