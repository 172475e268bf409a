"""The operator's commands, reached as ``mochi-server NAME`` where there is no ``manage.py``.

They live in the Django face, which the library does not import: packages and modules are named
here as uvicorn names an application, and only the one that runs is loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

FACE = ("mochi_project", "chat", "sessions_app", "tools_app", "agents_app", "prompts_app")
"""The packages that bring commands."""

DJANGOS = ("check",)
"""Django's own that say something about a server of ours."""

ELSEWHERE = frozenset({"runserver"})
"""For development; ``mochi-server`` itself serves."""

MANAGEMENT = "django.core.management"

NOBODY_READS = 141
"""The exit code that shells give to a command whose pipe was closed."""


def operator_commands() -> list[str]:
    """The names of all, from the files that are there."""
    found = {path.stem for package in FACE for path in _modules_of(package)}
    return sorted((found | {*DJANGOS}) - ELSEWHERE)


def _modules_of(package: str) -> Iterable[Path]:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "management" / "commands"
    return (path for path in folder.glob("*.py") if not path.stem.startswith("_"))


def split_at_command(
    arguments: Sequence[str], options: Iterable[str]
) -> tuple[list[str], list[str]] | None:
    """What stands before an operator's command, and the command with its own arguments.

    None when the first word is no such command.

    Args:
        arguments: of the command line.
        options: those that take a value, such as ``--data-dir``; they may be abbreviated.
    """
    known, at = tuple(options), 0
    while at < len(arguments) and arguments[at].startswith("-"):
        takes_value = any(option.startswith(arguments[at]) for option in known)
        at += 2 if takes_value else 1
    if at < len(arguments) and arguments[at] in operator_commands():
        return [*arguments[:at]], [*arguments[at:]]
    return None


def run_operator_command(program: str, arguments: Sequence[str]) -> None:
    """Run it with the settings of the environment; it ends the process when it fails.

    Raises:
        SystemExit: with the exit code of a command that failed.
    """
    management = importlib.import_module(MANAGEMENT)
    try:
        management.ManagementUtility([program, *arguments]).execute()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, such as ``head``; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)
