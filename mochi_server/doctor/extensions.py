"""What the user has written: tools, agents, prompts. Code is imported, as the server does it."""

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
from .findings import Finding, note, ok, shortened, warning

PROMPT_SUFFIXES = frozenset({".md", ".txt"})
PROMPT_ADVICE = f"Keep it readable and shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters."


async def check_tools(runtime: Runtime) -> list[Finding]:
    inventory = await runtime.tools.inventory()
    tools, groups = inventory.tools, inventory.groups
    in_groups = f" in {counted(len(groups), 'group')}" if groups else ""
    text = f"{counted(len(tools), 'tool')}{in_groups}." if tools else "No tools."
    return [ok(text), *_problems(inventory.problems, "tools", "mochi-server reload_tools --check")]


async def check_agents(runtime: Runtime) -> list[Finding]:
    agents = (await runtime.agents.agents()).values()
    usable = sum(agent.valid for agent in agents)
    text = f"{counted(len(agents), 'agent')}, {usable} of them usable." if agents else "No agents."
    problems = runtime.agents.problems()
    return [ok(text), *_problems(problems, "agents", "mochi-server reload_agents --check")]


def _problems(problems: Sequence[Problem], others: str, command: str) -> list[Finding]:
    warnings = [
        warning(
            f"{problem.file}:{problem.line or 1}: {problem.reason}"
            + (f" ({problem.tool})" if problem.tool else ""),
            f"Correct it; the other {others} work meanwhile.",
        )
        for problem in problems
        if not problem.is_hint
    ]
    hints = [note(str(problem)) for problem in problems if problem.is_hint]
    advice = f"{command} shows all."
    return [
        *shortened(warnings, lambda count: note(f"{count} problems more.", advice)),
        *shortened(hints, lambda count: note(f"{count} hints more.", advice)),
    ]


async def check_prompts(runtime: Runtime) -> list[Finding]:
    return await in_daemon_thread(_prompts_in, runtime.settings.system_prompts_path)


def _prompts_in(folder: Path) -> list[Finding]:
    try:
        files = sorted(path for path in folder.glob("*.*") if path.suffix in PROMPT_SUFFIXES)
    except OSError:  # the check of the folders says it
        return []
    findings = [finding for path in files for finding in _prompt_findings(path)]
    usable = len(files) - len(findings)
    more = "{} prompts more cannot be used."
    return [
        ok(f"{counted(usable, 'prompt')} for sessions."),
        *shortened(findings, lambda count: note(more.format(count), PROMPT_ADVICE)),
    ]


def _prompt_findings(path: Path) -> Iterator[Finding]:
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
        yield warning(problem, PROMPT_ADVICE)


def prompt_problem(path: Path) -> str | None:
    """Return why no session can have the text of this file; blocks."""
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
