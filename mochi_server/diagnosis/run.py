"""Runs checks side by side, each within its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from ..errors import JSONObject
from ..runtime import Runtime
from .configuration import look_at_reach, look_at_variables
from .extensions import look_at_agents, look_at_prompts, look_at_tools
from .findings import Check, Finding, Level, error
from .folders import look_at_folders, look_at_leftovers
from .machine import look_at_machine, look_at_redis, look_at_space
from .models import MOST_SECONDS, look_at_providers, look_at_windows
from .sessions import look_at_sessions

CLOSE_SECONDS = 2.0

ADVICE = "Correct the owner and the rights of the folders (ls -ld, chown, chmod)."


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found, in the order of the topics."""

    findings: Sequence[Finding]

    def count(self, level: Level) -> int:
        """How many findings are of this level."""
        return sum(finding.level == level for finding in self.findings)

    def as_json(self) -> JSONObject:
        """``{"errors", "warnings", "notes", "findings"}``."""
        return {
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "notes": self.count("note"),
            "findings": [finding.as_json() for finding in self.findings],
        }


async def diagnose(runtime: Runtime, more: Sequence[Check] = ()) -> Report:
    """Look at everything; takes at most about as long as the slowest check may.

    The runtime should be made for this alone: what it holds of tools and connections is closed at
    the end. Its storages are left alone, because closing them tidies up.
    """
    checks = [*CHECKS, *more]
    found: dict[int, Sequence[Finding]] = {}
    try:
        async with anyio.create_task_group() as group:
            for number, check in enumerate(checks):
                group.start_soon(_run, check, runtime, number, found)
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await _close(runtime)
    topics = list(dict.fromkeys(check.topic for check in checks))
    order = sorted(range(len(checks)), key=lambda number: topics.index(checks[number].topic))
    return Report([each.of(checks[number].topic) for number in order for each in found[number]])


async def _run(
    check: Check, runtime: Runtime, number: int, found: dict[int, Sequence[Finding]]
) -> None:
    found[number] = [
        error(
            f"This was not looked through within {check.seconds:g} seconds.",
            "Look for a disk, a network drive or code that hangs.",
        )
    ]
    with anyio.move_on_after(check.seconds):
        try:
            found[number] = await check.look(runtime)
        except OSError as failed:  # a folder above it may not be entered, a disk is broken, …
            found[number] = [error(f"This could not be looked through: {failed}", ADVICE)]


async def _close(runtime: Runtime) -> None:
    """The loader first: it ends what the others would wait for."""
    for part in (runtime.tool_loader, runtime.tools, runtime.agents, runtime.providers):
        await part.aclose()


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
