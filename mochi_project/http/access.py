"""What routes need."""

from __future__ import annotations

from typing import NamedTuple

from mochi_server.core.caller import Right


class Access(NamedTuple):
    """What a route needs."""

    right: Right | None
    """None: no token is needed."""
    action: str | None = None
    """Its name in the audit log; None: it is not written there."""


OPEN = Access(None)
READ = Access("read")
CHAT = Access("chat")
TOOLS = Access("tools")
ADMIN = Access("admin")
