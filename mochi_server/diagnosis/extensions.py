"""What the user has written: tools and agents. Their modules are imported, as the server does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..constants import SYSTEM_PROMPT_CHARACTERS
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..errors import PromptNotFound, StorageError
from ..runtime import Runtime
from ..services.system_prompts import FILENAME, read_prompt
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


SUFFIXES = frozenset({".md", ".txt"})
ADVICE = f"Keep it readable and shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters."


async def look_at_prompts(runtime: Runtime) -> list[Finding]:
    """How many there are, and which of them no session can have."""
    return await in_daemon_thread(_look, runtime.settings.system_prompts_path)


def _look(folder: Path) -> list[Finding]:
    try:
        files = sorted(path for path in folder.glob("*.*") if path.suffix in SUFFIXES)
    except OSError:  # told by the check of the folders
        return []
    findings = [finding for path in files for finding in _findings(path)]
    usable = len(files) - len(findings)
    rest = some(findings, lambda count: note(f"{count} prompts more cannot be used.", ADVICE))
    return [ok(f"{counted(usable, 'prompt')} for sessions."), *rest]


def _findings(path: Path) -> Iterator[Finding]:
    if FILENAME.fullmatch(path.name) is None:
        yield warning(
            f"{path} has a name that no prompt can have.",
            "Letters, digits, '.', '_', '-' and spaces, a letter or digit first.",
        )
    elif not path.is_file() or path.is_symlink():
        yield warning(
            f"{path} is not a plain file.", "Put the file itself there: links are not read."
        )
    elif (problem := prompt_problem(path)) is not None:
        yield warning(problem, ADVICE)


def prompt_problem(path: Path) -> str | None:
    """Why no session can have the text of this file; blocks."""
    try:
        text = read_prompt(path)
    except StorageError as error:
        return f"{path}: {error.message}"
    except PromptNotFound:  # a folder, a pipe, a link: nobody is offered it
        return None
    if not text.strip():
        return f"{path} is empty."
    length = len(text)
    return f"{path} has {length:,} characters." if length >= SYSTEM_PROMPT_CHARACTERS else None
