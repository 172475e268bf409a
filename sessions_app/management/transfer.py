"""``manage.py sessions export`` and ``import``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from mochi_project.management.console import as_json, plain, plain_lines, progress, table
from mochi_server.core.aio import in_daemon_thread, in_thread
from mochi_server.core.files import replace_file
from mochi_server.errors import JSONObject, MochiError, SessionExists
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.storage import JSONFileStorage
from mochi_server.sessions.transfer import (
    CannotImport,
    ExportFormat,
    Imported,
    export_session,
    import_session,
)

from .shared import Console, Options

EXPORT_COLUMNS = ("SESSION", "FILE")
IMPORT_COLUMNS = ("FILE", "SESSION", "MESSAGES", "VERSION")
ASKS = (
    "asks before every tool call: the policies in its file were not taken over. "
    "PATCH /sessions/{session_id} changes them."
)
STDIN = "-"
READ_BYTES = 1_000_000


def add_export(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("session_id", metavar="ID", nargs="?", help="Which one.")
    which.add_argument("--all", action="store_true", help="All, each into a file of --output.")
    parser.add_argument(
        "--format",
        choices=[each.value for each in ExportFormat],
        default=ExportFormat.JSON.value,
        help="The session file as it is (default), Markdown, or JSON Lines of chat messages.",
    )
    parser.add_argument(
        "--output", metavar="PATH", type=Path, help="A file, with --all a folder; else stdout."
    )
    parser.add_argument("--force", action="store_true", help="Overwrite files.")


async def export_sessions(sessions: SessionManager, options: Options, console: Console) -> int:
    """Write one session to stdout or a file, or all to a folder."""
    to = ExportFormat(options["format"])
    output: Path | None = options["output"]
    if output is None:
        if options["all"]:
            raise CommandError("--all wants a folder: --output DIR", returncode=2)
        text = (await export_session(sessions, options["session_id"], to)).decode()
        console.out.write(plain_lines(text) if console.out.isatty() else text, ending="")
        return 0
    _check_output(output, sessions)
    if options["all"]:
        page = await sessions.list()
        names = [str(line["session_id"]) for line in (*page.entries, *page.problems)]
        targets = {name: output / f"{name}{to.suffix}" for name in names}
    else:
        await sessions.get(options["session_id"])
        targets = {options["session_id"]: output}
    exported: list[JSONObject] = []
    problems: list[JSONObject] = []
    bar = progress("sessions") if len(targets) > 1 else None
    for number, (session_id, path) in enumerate(targets.items(), start=1):
        reason = await _export(sessions, session_id, to, path, force=options["force"])
        if reason is None:
            exported.append({"session_id": session_id, "file": str(path)})
        else:
            problems.append({"session_id": session_id, "reason": reason})
        if bar is not None:
            bar.advance(number, len(targets))
    if options["json"]:
        console.out.write(as_json({"exported": exported, "problems": problems}))
    else:
        rows = [(each["session_id"], each["file"]) for each in exported]
        console.out.write(table(rows, EXPORT_COLUMNS) if rows else "Nothing was exported.")
        console.print_problems(problems)
    return 1 if problems else 0


async def _export(
    sessions: SessionManager, session_id: str, to: ExportFormat, path: Path, *, force: bool
) -> str | None:
    """Write a session to a file; return the reason if that failed."""
    try:
        content = await export_session(sessions, session_id, to)
        await in_thread(replace_file, path, [content], new=not force, private=True)
    except MochiError as error:
        return error.message
    except FileExistsError:
        return f"{path} is there already (see --force)"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


def _check_output(output: Path, sessions: SessionManager) -> None:
    """Refuse to write into the sessions folder, which a server may be using."""
    storage = sessions.storage
    if isinstance(storage, JSONFileStorage) and output.resolve().is_relative_to(
        storage.folder.resolve()
    ):
        raise CommandError(f"{output} is in the folder of the sessions themselves.")


def add_import(parser: argparse.ArgumentParser) -> None:
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


async def import_sessions(sessions: SessionManager, options: Options, console: Console) -> int:
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
    _report_imports(done, problems, console, as_object=options["json"])
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


def _report_imports(
    done: list[tuple[str, Imported]],
    problems: list[tuple[str, str]],
    console: Console,
    *,
    as_object: bool,
) -> None:
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
    console.out.write(table(rows, IMPORT_COLUMNS) if rows else "Nothing was imported.")
    for _, each in done:
        if each.policies_changed:
            console.out.write(f"{each.session_id} {ASKS}")
    for name, reason in problems:
        console.err.write(plain(f"problem: {name}: {reason}"))
