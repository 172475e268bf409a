"""What the user has written: tools, agents, prompts. Code is imported, as the server does it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..backends import default_providers
from ..constants import SYSTEM_PROMPT_CHARACTERS
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..errors import PromptInvalid, PromptNotFound, StorageError
from ..plugins import plugins
from ..runtime import Runtime
from ..sandbox import make_sandbox
from ..services.system_prompts import FILENAME, read_prompt
from ..tools.base import Problem
from ..tools.mcp.config.entry import (
    CONFINES_NOTHING,
    UNCONFINED,
    McpServerConfig,
    McpServerUnusable,
)
from ..tools.mcp.config.file import McpConfigFile
from .findings import Finding, note, ok, shortened, warning

PROMPT_SUFFIXES = frozenset({".md", ".txt"})
PROMPT_ADVICE = f"Keep it readable and shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters."


async def check_packages(runtime: Runtime) -> list[Finding]:
    """Name the packages that bring providers and tools; whether these work, other checks say."""
    used = default_providers(runtime.settings)
    findings = []
    for plugin in plugins("mochi_server.providers"):
        text = f"The package {plugin.package} brings the provider {plugin.name}"
        if used.get(plugin.name, {}).get("PACKAGE") == plugin.package:
            findings.append(ok(f"{text}."))
        else:
            is_test = runtime.settings.environment == "test"
            why = "in test mode" if is_test else "as another one has this name"
            findings.append(note(f"{text}, which is not used {why}."))
    return findings + [
        ok(f"The package {plugin.package} brings the group of tools {plugin.name}.")
        for plugin in plugins("mochi_server.tools")
    ]


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


async def check_rules(runtime: Runtime) -> list[Finding]:
    """Find rules about tool calls that cannot be read: then every call is asked about."""
    (rule_set,) = await runtime.inbox.rules()
    if rule_set.problem is not None:
        text = f"{rule_set.problem}: a person is asked about every tool call."
        return [warning(text, f"Correct {runtime.settings.rules_path}.")]
    if not rule_set.rules:
        return []
    return [ok(f"{counted(len(rule_set.rules), 'rule')} about tool calls.")]


async def check_tool_sandbox(runtime: Runtime) -> list[Finding]:
    """Try the sandbox of tools, if there is one."""
    name = runtime.settings.tool_sandbox
    if name == "none":
        return []
    problem = await make_sandbox(name).problem()
    if problem is not None:
        text = f"MOCHI_TOOL_SANDBOX={name}: no tool is offered, as {problem}."
        otherwise = "remove the variable: tools then run without one"
        return [warning(text, _advice_for_sandbox(problem, otherwise))]
    return [ok(f"Tools run in the sandbox {name}.")]


def _advice_for_sandbox(problem: str, otherwise: str) -> str:
    if "installed" in problem:
        return f"Install it, or {otherwise}."
    if "bwrap" not in problem:
        return f"Make it work, or {otherwise}."
    if os.getuid() == 0:
        where = "a container needs a seccomp profile that does so"
    else:
        where = "look at the settings kernel.apparmor_restrict_unprivileged_userns and user.max_*"
    return f"Allow namespaces ({where}), or {otherwise}."


async def check_workspaces(runtime: Runtime) -> list[Finding]:
    """Try the sandbox of workspaces, if there are any."""
    settings = runtime.settings
    if not settings.workspace_enabled:
        return []
    if find_spec("mcp") is None:
        text = "MOCHI_WORKSPACE_ENABLED is set, and the package mcp is missing."
        return [warning(text, "pip install 'mochi-server[mcp]'")]
    problem = await runtime.sandbox_launcher.problem(settings.sandbox)
    if problem is not None:
        text = f"The tools of workspaces are not offered: {problem}."
        otherwise = "set MOCHI_SANDBOX to one that works"
        return [warning(text, _advice_for_sandbox(problem, otherwise))]
    if settings.sandbox == "process":
        text = "MOCHI_SANDBOX=process confines nothing: a model's commands can do what you can."
        return [warning(text, "Set it to bubblewrap or docker.")]
    return [ok(f"Workspaces, in the sandbox {settings.sandbox}.")]


async def check_mcp(runtime: Runtime) -> list[Finding]:
    """Check the file of MCP servers, and whether they could be started; none is."""
    settings = runtime.settings
    config = await McpConfigFile(settings.mcp_config_path).read()
    servers = [each for each in config.servers.values() if not each.disabled]
    findings = [
        warning(str(problem), "Correct it; the other servers can be used meanwhile.")
        for problem in config.problems
    ]
    if servers and find_spec("mcp") is None:
        text = "There are MCP servers, and the package mcp is missing."
        findings.append(warning(text, "pip install 'mochi-server[mcp]'"))
    allowed = settings.mcp_allowed_commands
    problems = [await in_daemon_thread(_mcp_problem, server, allowed) for server in servers]
    advice = f"Correct it in {settings.mcp_config_path}, or set the variable."
    findings += [warning(problem, advice) for problem in problems if problem is not None]
    findings += [each for server in servers async for each in _sandbox_of(server, runtime)]
    if config.servers:
        findings += await in_daemon_thread(_readable_by_others, settings.mcp_config_path)
    count = [ok(f"{counted(len(servers), 'MCP server')}.")] if servers else []
    return [*count, *shortened(findings, lambda count: note(f"{count} problems more."))]


async def _sandbox_of(server: McpServerConfig, runtime: Runtime) -> AsyncIterator[Finding]:
    """Say what is wrong with the sandbox that a server names."""
    name, path = server.options.sandbox, runtime.settings.mcp_config_path
    if name is None:
        return
    otherwise = f"name another sandbox in {path}"
    if (problem := await runtime.sandbox_launcher.problem(name)) is not None:
        text = f"The MCP server {server.name!r} cannot be started: {problem}."
        yield warning(text, _advice_for_sandbox(problem, otherwise))
    elif name == UNCONFINED:
        text = CONFINES_NOTHING.format(name=server.name)
        yield warning(text, f"Name bubblewrap or docker in {path}.")


def _mcp_problem(server: McpServerConfig, allowed: Sequence[str]) -> str | None:
    """Return why a server could not be started; blocks."""
    try:
        config = server.expanded(allowed)
    except McpServerUnusable as error:
        return f"The MCP server {server.name!r} cannot be started: {error}."
    path = config.env.get("PATH")
    if config.command is None or "/" in config.command or shutil.which(config.command, path=path):
        return None
    return f"The MCP server {server.name!r} cannot be started: there is no {config.command!r}."


def _readable_by_others(path: Path) -> list[Finding]:
    if not path.exists() or not path.stat().st_mode & stat.S_IROTH:
        return []
    text = f"{path}, which may have keys in it, can be read by every user of this machine."
    return [note(text, f"chmod o-r {path}")]


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
    except (PromptInvalid, StorageError) as error:
        return f"{path}: {error.message}"
    except PromptNotFound:  # a folder, a pipe, a link: nobody is offered it
        return None
    if not text.strip():
        return f"{path} is empty."
    length = len(text)
    return f"{path} has {length:,} characters." if length >= SYSTEM_PROMPT_CHARACTERS else None
