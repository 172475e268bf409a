"""One action of ``manage.py sessions``."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.core.management.base import OutputWrapper

from mochi_project.management.console import plain
from mochi_server.sessions.manager import SessionManager


@dataclass(frozen=True, slots=True)
class Console:
    """The output of an action."""

    out: OutputWrapper
    """The result."""
    err: OutputWrapper
    """What went wrong."""

    def problem(self, name: str, reason: str) -> None:
        """Write one line about something that failed."""
        self.err.write(plain(f"problem: {name}: {reason}"))


Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """A sub-command with its help, arguments and function."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[SessionManager, Options, Console], Awaitable[int]]
    """Returns the exit code."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which every action has."""
    parser.add_argument("--json", action="store_true", help="Print JSON.")
