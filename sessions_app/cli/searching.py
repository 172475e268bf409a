"""``manage.py sessions search``: find sessions by their texts."""

from __future__ import annotations

import argparse
from typing import Any

from mochi_project.management.console import as_json, plain, progress
from mochi_server.sessions.catalogue.search import PAGE, SearchResult, SessionSearch
from mochi_server.sessions.manager import SessionManager

from .action import Action, Console, Options, add_json
from .listing import add_filter, at_least_one, changed, filter_of

MARK, UNMARK = "\x1b[1m", "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``search WORD... [--archived true|false|all] [--tag TAG] [--limit N] [--json]``."""
    parser.add_argument(
        "query", nargs="+", metavar="WORD", help='Words, "a phrase", begin*; after -- also -not.'
    )
    add_filter(parser)
    parser.add_argument("--limit", type=at_least_one, default=PAGE, help="The best so many.")
    add_json(parser)


async def run(sessions: SessionManager, options: Options, console: Console) -> int:
    """Print the matching sessions, the best first; a bar shows the progress of a long indexing."""
    search = SessionSearch(sessions.catalogue)
    try:
        await search.update(progress("sessions"))
        result = await search.search(
            words(options["query"]),
            limit=options["limit"],
            session_filter=filter_of(options),
            wait_seconds=None,
        )
    finally:
        await search.aclose()
    if options["json"]:
        console.out.write(as_json(result.as_json()))
    else:
        show(result, console)
    return 0


def words(arguments: list[str]) -> str:
    """Return the query; an argument with blanks, which was quoted in the shell, is a phrase."""
    if len(arguments) == 1:
        return arguments[0]
    return " ".join(f'"{each}"' if " " in each else each for each in arguments)


def show(result: SearchResult, console: Console) -> None:
    """Print two lines for each session, then the files that cannot be read."""
    marks = (MARK, UNMARK) if console.out.isatty() else ("[", "]")
    for line in result.sessions:
        title = plain(str(line["title"] or line["preview"]))
        console.out.write(f"{line['session_id']}  {changed(line)}  {title}".rstrip())
        console.out.write(f"    {marked(line['snippet'], *marks)}".rstrip())
    if not result.sessions:
        console.out.write("No sessions found.")
    for problem in result.problems:
        console.problem(str(problem["session_id"]), str(problem["reason"]))


def marked(snippet: Any, mark: str, unmark: str) -> str:  # noqa: ANN401 - a list of the answer
    """Return the passage with marks around what matches."""
    return "".join(
        f"{mark}{plain(part['text'])}{unmark}" if part["match"] else plain(part["text"])
        for part in snippet
    )


ACTION = Action("Find sessions by what was said in them.", add_arguments, run)
