"""Runs all checks side by side, each within its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio

from ..errors import JSONObject
from ..runtime import Runtime
from .data import check_folders, check_leftovers, check_sessions, check_space
from .extensions import (
    check_agents,
    check_mcp,
    check_packages,
    check_prompts,
    check_rules,
    check_tool_sandbox,
    check_tools,
    check_workspaces,
)
from .findings import Check, Finding, Level, error
from .models import MAX_SECONDS, check_providers, check_windows
from .presets import check_presets
from .server import check_machine, check_processes, check_reach, check_redis, check_variables

CHECKS = (
    Check(topic="server", run=check_machine),
    Check(topic="settings", run=check_variables),
    Check(topic="security", run=check_reach),
    Check(topic="folders", run=check_folders),
    Check(topic="folders", run=check_space),
    Check(topic="folders", run=check_leftovers),
    Check(topic="models", run=check_providers, seconds=MAX_SECONDS),
    Check(topic="models", run=check_windows),
    Check(topic="packages", run=check_packages),
    Check(topic="tools", run=check_tools),
    Check(topic="tools", run=check_rules),
    Check(topic="tools", run=check_mcp),
    Check(topic="tools", run=check_workspaces),
    Check(topic="agents", run=check_agents),
    Check(topic="tools", run=check_tool_sandbox),
    Check(topic="prompts", run=check_prompts),
    Check(topic="prompts", run=check_presets),
    Check(topic="sessions", run=check_sessions),
    Check(topic="several processes", run=check_redis),
    Check(topic="several processes", run=check_processes),
)

CLOSE_SECONDS = 2.0

ADVICE = "Correct the owner and the rights of the folders (ls -ld, chown, chmod)."


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings, in the order of the topics."""

    findings: Sequence[Finding]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    def as_json(self) -> JSONObject:
        return {
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "notes": self.count("note"),
            "findings": [finding.as_json() for finding in self.findings],
        }


async def diagnose(runtime: Runtime, more: Sequence[Check] = ()) -> DoctorReport:
    """Run every check, and ``more`` of the caller's, on a runtime that was made for this alone.

    Its tools and connections are closed at the end; its storages are not, as that tidies up.
    """
    checks = [*CHECKS, *more]
    findings: dict[int, Sequence[Finding]] = {}
    try:
        async with anyio.create_task_group() as group:
            for number, check in enumerate(checks):
                group.start_soon(_run, check, runtime, number, findings)
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            # The loader first: it ends what the others would wait for.
            for part in (runtime.tool_loader, runtime.tools, runtime.agents, runtime.providers):
                await part.aclose()
    topics: dict[str, list[Finding]] = {}
    for number, check in enumerate(checks):
        row = topics.setdefault(check.topic, [])
        row += [replace(finding, topic=check.topic) for finding in findings[number]]
    return DoctorReport([finding for row in topics.values() for finding in row])


async def _run(
    check: Check, runtime: Runtime, number: int, findings: dict[int, Sequence[Finding]]
) -> None:
    findings[number] = [
        error(
            f"This was not looked through within {check.seconds:g} seconds.",
            "Look for a disk, a network drive or code that hangs.",
        )
    ]
    with anyio.move_on_after(check.seconds):
        try:
            findings[number] = await check.run(runtime)
        except OSError as failed:  # a folder above it may not be entered, a disk is broken, …
            findings[number] = [error(f"This could not be looked through: {failed}", ADVICE)]
