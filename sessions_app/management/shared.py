"""What the commands of sessions share: their output, ``--json`` and the table of sessions."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.core.management.base import OutputWrapper

from mochi_project.management.console import cut, plain, table
from mochi_server.errors import JSONObject
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.types import FLAGS

COLUMNS = ("ID", "CHANGED", "MESSAGES", "MODEL", "TITLE", "TAGS", "FLAGS")
TITLE_COLUMNS = 50
MINUTE = 16
"""Characters of a time up to the minute."""

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Console:
    """The output of an action: its result, and what went wrong."""

    out: OutputWrapper
    err: OutputWrapper

    def print_problems(self, problems: Iterable[JSONObject]) -> None:
        for problem in problems:
            self.err.write(plain(f"problem: {problem['session_id']}: {problem['reason']}"))


Action = Callable[[SessionManager, Options, Console], Awaitable[int]]
"""Performs a sub-command and returns the exit code."""


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON.")


def lines_table(lines: Iterable[JSONObject]) -> str:
    return table([_row(line) for line in lines], COLUMNS)


def changed_at(line: JSONObject) -> str:
    return str(line["updated_at"])[:MINUTE].replace("T", " ")


def _row(line: JSONObject) -> list[object]:
    tags = line["tags"]
    return [
        line["session_id"],
        changed_at(line),
        line["message_count"],
        line["model"],
        cut(str(line["title"] or line["preview"]), TITLE_COLUMNS) or None,
        ", ".join(map(str, tags if isinstance(tags, list) else [])) or None,
        ", ".join(flag for flag in FLAGS if line[flag]) or None,
    ]
