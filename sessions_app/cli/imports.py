"""``manage.py sessions import``: create sessions from files."""

from __future__ import annotations

import argparse
import sys

from django.conf import settings

from mochi_project.management.console import as_json, progress, table
from mochi_server.core.aio import in_daemon_thread
from mochi_server.errors import MochiError, SessionExists
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.transfer.importing import CannotImport, Imported, import_session

from .action import Action, Console, Options, add_json

COLUMNS = ("FILE", "SESSION", "MESSAGES", "VERSION")
ASKS = (
    "asks before every tool call: the policies in its file were not taken over. "
    "PATCH /sessions/{session_id} changes them."
)
STDIN = "-"
READ_BYTES = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``import FILE… [--model NAME] [--new-id] [--json]``."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="Session files, or JSON Lines of chat messages; - is stdin.",
    )
    parser.add_argument("--model", help="Of JSON Lines that name none.")
    parser.add_argument(
        "--new-id", action="store_true", help="Give session files other ids than their own."
    )
    add_json(parser)


async def run(sessions: SessionManager, options: Options, console: Console) -> int:
    """Import each file; a file that fails changes nothing and does not stop the others."""
    done: list[tuple[str, Imported]] = []
    problems: list[tuple[str, str]] = []
    files = options["files"]
    bar = progress("files") if len(files) > 1 else None
    for number, name in enumerate(files, start=1):
        try:
            content = await in_daemon_thread(_read, name, settings.MOCHI.max_import_mb)
            imported = await import_session(
                sessions, content, model=options["model"], new_id=options["new_id"]
            )
            done.append((name, imported))
        except (CannotImport, MochiError, OSError) as error:
            problems.append((name, _reason(error)))
        if bar is not None:
            bar.advance(number, len(files))
    if done:
        await sessions.catalogue.bring_up_to_date()  # for a running server, which shares it
    report(done, problems, console, as_object=options["json"])
    return 1 if problems else 0


def _read(name: str, most_mb: float) -> bytes:
    """Read a file in a thread that Ctrl-C does not wait for: a pipe may never end.

    Raises:
        CannotImport: it is larger than so many million bytes, or a stdin that is closed.
        OSError: it cannot be read.
    """
    parts, size, most = [], 0, int(most_mb * 1_000_000)
    is_stdin = name == STDIN
    if is_stdin and sys.stdin is None:
        raise CannotImport("stdin is closed")
    # Without a buffer, whose lock the interpreter would want at its end.
    place = sys.stdin.fileno() if is_stdin else name
    with open(place, "rb", buffering=0, closefd=not is_stdin) as file:
        while part := file.read(READ_BYTES):
            parts.append(part)
            size += len(part)
            if size > most:
                raise CannotImport(
                    f"it is larger than {most_mb:g} MB; MOCHI_MAX_IMPORT_MB allows more"
                )
    return b"".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, SessionExists):
        return f"{error.message} Nothing was overwritten (see --new-id)."
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def report(
    done: list[tuple[str, Imported]],
    problems: list[tuple[str, str]],
    console: Console,
    *,
    as_object: bool,
) -> None:
    """Print what was imported, and what failed."""
    if as_object:
        objects = [
            {
                "file": name,
                "session_id": each.session_id,
                "message_count": each.message_count,
                "format_version": each.version,
                "policies_changed": each.policies_changed,
            }
            for name, each in done
        ]
        failed = [{"file": name, "reason": reason} for name, reason in problems]
        console.out.write(as_json({"imported": objects, "problems": failed}))
        return
    rows = [(name, each.session_id, each.message_count, each.version) for name, each in done]
    console.out.write(table(rows, COLUMNS) if rows else "Nothing was imported.")
    for _, each in done:
        if each.policies_changed:
            console.out.write(f"{each.session_id} {ASKS}")
    for name, reason in problems:
        console.problem(name, reason)


ACTION = Action("Make sessions of files; nothing is ever overwritten.", add_arguments, run)
