"""What the user has written: tools and agents. Their modules are imported, as the server does."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.progress import counted
from ..runtime import Runtime
from ..tools.base import Problem
from .findings import Finding, note, ok, some, warning


async def look_at_tools(runtime: Runtime) -> list[Finding]:
    """How many there are, and what of the folder cannot be used."""
    found = await runtime.tools.inventory()
    groups = f" in {counted(len(found.groups), 'group')}" if found.groups else ""
    text = f"{counted(len(found.tools), 'tool')}{groups}." if found.tools else "No tools."
    return [ok(text), *_problems(found.problems, "tools", "mochi-server reload_tools --check")]


async def look_at_agents(runtime: Runtime) -> list[Finding]:
    """How many there are, and why some cannot be used."""
    found = (await runtime.agents.agents()).values()
    usable = sum(agent.valid for agent in found)
    text = f"{counted(len(found), 'agent')}, {usable} of them usable." if found else "No agents."
    problems = runtime.agents.problems()
    return [ok(text), *_problems(problems, "agents", "mochi-server reload_agents --check")]


def _problems(problems: Sequence[Problem], others: str, command: str) -> list[Finding]:
    """A warning for each problem; a note for what is left out and needs no correction."""
    warnings = [
        warning(
            f"{each.file}:{each.line or 1}: {each.reason}"
            + (f" ({each.tool})" if each.tool else ""),
            f"Correct it; the other {others} work meanwhile.",
        )
        for each in problems
        if not each.is_hint
    ]
    hints = [note(str(each)) for each in problems if each.is_hint]
    return [
        *some(warnings, lambda count: note(f"{count} problems more.", f"{command} shows all.")),
        *some(hints, lambda count: note(f"{count} hints more.", f"{command} shows all.")),
    ]
