"""``manage.py sessions list``, ``search`` and ``show``."""

from __future__ import annotations

import argparse
from typing import Any

import orjson
from django.core.management.base import CommandError

from mochi_project.management.console import as_json, plain, plain_lines, progress
from mochi_server.core.aio import in_thread
from mochi_server.sessions import JSONFileStorage, SessionFilter
from mochi_server.sessions.catalogue.search import PAGE, SessionSearch
from mochi_server.sessions.exports.markdown import as_markdown
from mochi_server.sessions.manager import SessionManager

from ..schemas import ARCHIVED
from .shared import Console, Options, changed_at, lines_table

MARK, UNMARK = "\x1b[1m", "\x1b[0m"


def add_list(parser: argparse.ArgumentParser) -> None:
    _add_filter(parser)
    parser.add_argument("--limit", type=_at_least_one, help="The first so many.")


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "query", nargs="+", metavar="WORD", help='Words, "a phrase", begin*; after -- also -not.'
    )
    _add_filter(parser)
    parser.add_argument("--limit", type=_at_least_one, default=PAGE, help="The best so many.")


def add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session_id", metavar="ID", help="Which one.")


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--archived", choices=ARCHIVED, default="all", help="Only (not) archived.")
    parser.add_argument(
        "--tag", action="append", default=[], help="Only with this tag; may be given again."
    )


def _filter_of(options: Options) -> SessionFilter:
    return SessionFilter(archived=ARCHIVED[options["archived"]], tags=tuple(options["tag"]))


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


async def list_sessions(sessions: SessionManager, options: Options, console: Console) -> int:
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
    page = await sessions.list(options["limit"], session_filter=_filter_of(options))
    if options["json"]:
        console.out.write(as_json({"sessions": page.entries, "problems": page.problems}))
        return 0
    console.out.write(lines_table(page.entries) if page.entries else f"No sessions{place}.")
    console.print_problems(page.problems)
    return 0


async def search_sessions(sessions: SessionManager, options: Options, console: Console) -> int:
    """Print the matching sessions, the best first; a bar shows the progress of a long indexing."""
    search = SessionSearch(sessions.catalogue)
    try:
        result = await search.search(
            _query_of(options["query"]),
            limit=options["limit"],
            session_filter=_filter_of(options),
            wait_seconds=None,
            progress=progress("sessions"),
        )
    finally:
        await search.aclose()
    if options["json"]:
        console.out.write(as_json(result.as_json()))
        return 0
    marks = (MARK, UNMARK) if console.out.isatty() else ("[", "]")
    for line in result.sessions:
        title = plain(str(line["title"] or line["preview"]))
        console.out.write(f"{line['session_id']}  {changed_at(line)}  {title}".rstrip())
        console.out.write(f"    {_marked(line['snippet'], *marks)}".rstrip())
    if not result.sessions:
        console.out.write("No sessions found.")
    console.print_problems(result.problems)
    return 0


def _query_of(arguments: list[str]) -> str:
    """Join the words; an argument with blanks, which was quoted in the shell, is a phrase."""
    if len(arguments) == 1:
        return arguments[0]
    return " ".join(f'"{each}"' if " " in each else each for each in arguments)


def _marked(snippet: Any, mark: str, unmark: str) -> str:  # noqa: ANN401 - a list of the answer
    return "".join(
        f"{mark}{plain(part['text'])}{unmark}" if part["match"] else plain(part["text"])
        for part in snippet
    )


async def show_session(sessions: SessionManager, options: Options, console: Console) -> int:
    """Print a session as ``GET /sessions/{id}`` answers it, or as Markdown."""
    session = await sessions.get(options["session_id"])
    if options["json"]:
        metadata = session.metadata
        head = {**metadata.model_dump(mode="json"), **metadata.labels}
        text = as_json({**head, "messages": orjson.loads(session.messages_json())})
    else:
        text = plain_lines(as_markdown(session).rstrip("\n"))
    console.out.write(text)
    return 0
