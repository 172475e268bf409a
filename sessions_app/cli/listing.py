"""``manage.py sessions list``: print the sessions as a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from django.core.management.base import CommandError

from mochi_project.management.console import as_json, cut, table
from mochi_server.core.aio import in_thread
from mochi_server.errors import JSONObject
from mochi_server.sessions import JSONFileStorage, SessionFilter
from mochi_server.sessions.manager import SessionManager

from ..schemas import ARCHIVED
from .action import Action, Console, Options, add_json

COLUMNS = ("ID", "CHANGED", "MESSAGES", "MODEL", "TITLE", "TAGS", "FLAGS")
TITLE_COLUMNS = 50
MINUTE = 16
"""Characters of a time up to the minute."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``list [--archived true|false|all] [--tag TAG] [--limit N] [--json]``."""
    add_filter(parser)
    parser.add_argument("--limit", type=at_least_one, help="The first so many.")
    add_json(parser)


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Add ``--archived`` and ``--tag``."""
    parser.add_argument("--archived", choices=ARCHIVED, default="all", help="Only (not) archived.")
    parser.add_argument(
        "--tag", action="append", default=[], help="Only with this tag; may be given again."
    )


def filter_of(options: Options) -> SessionFilter:
    """Return the filter that these options name."""
    return SessionFilter(ARCHIVED[options["archived"]], tuple(options["tag"]))


def at_least_one(text: str) -> int:
    """Parse the number of an option.

    Raises:
        argparse.ArgumentTypeError: it is none, or below one.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


async def run(sessions: SessionManager, options: Options, console: Console) -> int:
    """Print the sessions, the one changed last first, and then the files that cannot be read.

    Raises:
        CommandError: there is no folder of sessions.
    """
    place = ""
    if isinstance(sessions.storage, JSONFileStorage):
        folder = sessions.storage.folder
        if not await in_thread(folder.is_dir):
            raise CommandError(
                f"There is no folder {folder}. Name that of the data: --data-dir, MOCHI_DATA_DIR."
            )
        place = f" in {folder}"
    page = await sessions.list(options["limit"], session_filter=filter_of(options))
    if options["json"]:
        console.out.write(as_json({"sessions": page.entries, "problems": page.problems}))
        return 0
    console.out.write(lines_table(page.entries) if page.entries else f"No sessions{place}.")
    for problem in page.problems:
        console.problem(str(problem["session_id"]), str(problem["reason"]))
    return 0


def lines_table(lines: Iterable[JSONObject]) -> str:
    """Return lines of the list as a table."""
    return table([row(line) for line in lines], COLUMNS)


def changed(line: JSONObject) -> str:
    """Return when a session was changed last, to the minute."""
    return str(line["updated_at"])[:MINUTE].replace("T", " ")


def row(line: JSONObject) -> list[object]:
    """Return the cells of one session."""
    flags = [flag for flag in ("pinned", "archived") if line[flag]]
    tags = line["tags"]
    return [
        line["session_id"],
        changed(line),
        line["message_count"],
        line["model"],
        cut(str(line["title"] or line["preview"]), TITLE_COLUMNS) or None,
        ", ".join(map(str, tags if isinstance(tags, list) else [])) or None,
        ", ".join(flags) or None,
    ]


ACTION = Action("List the sessions, the one changed last first.", add_arguments, run)
