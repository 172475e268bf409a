"""``manage.py sessions export`` and ``import``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, get_args

from django.conf import settings
from django.core.management.base import CommandError
from pydantic import JsonValue

from mochi_project.management.console import as_json, plain, plain_lines, progress, table
from mochi_server.core.aio import in_daemon_thread, in_thread
from mochi_server.core.files import replace_file
from mochi_server.core.progress import Progress
from mochi_server.errors import CannotImport, JSONObject, MochiError
from mochi_server.sessions.attachments import AttachmentReader, AttachmentStore
from mochi_server.sessions.exports.exporter import ExportFormat, export_session
from mochi_server.sessions.exports.several import file_stems
from mochi_server.sessions.imports.importer import Importer
from mochi_server.sessions.imports.json_values import too_large
from mochi_server.sessions.imports.report import ImportReport, Outcome
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.storage import JSONFileStorage

from .shared import Console, Options

EXPORT_COLUMNS = ("SESSION", "FILE")
IMPORT_COLUMNS = ("FILE", "FROM", "SESSIONS", "NEW", "CONTINUED", "UNCHANGED", "MESSAGES")
ASKS = (
    "asks before every tool call: the policies in its file were not taken over. "
    "PATCH /sessions/{session_id} changes them."
)
STDIN = "-"
READ_BYTES = 1_000_000
PATIENCE = 0.5
"""Seconds before progress is shown."""


def add_export(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("session_id", metavar="ID", nargs="?", help="Which one.")
    which.add_argument(
        "--all", action="store_true", help="All, each into a file of --output, by date and title."
    )
    parser.add_argument(
        "--format",
        choices=[each.value for each in ExportFormat],
        default=ExportFormat.JSON.value,
        help="The session file as it is (default), Markdown, a line for fine-tuning, a page, or an "
        "archive of the session file and its attachments.",
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
        if to is ExportFormat.ZIP:
            raise CommandError("An archive wants a file: --output FILE", returncode=2)
        text = (await export_session(sessions, _attachments(), options["session_id"], to)).decode()
        console.out.write(plain_lines(text) if console.out.isatty() else text, ending="")
        return 0
    _check_output(output, sessions)
    if options["all"]:
        page = await sessions.list()
        stems = {str(line["session_id"]): str(line["session_id"]) for line in page.problems}
        stems |= file_stems(page.entries)
        targets = {name: output / f"{stem}{to.suffix}" for name, stem in stems.items()}
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
        content = await export_session(sessions, _attachments(), session_id, to)
        await in_thread(replace_file, path, [content], new=not force, private=True)
    except MochiError as error:
        return error.message
    except FileExistsError:
        return f"{path} is there already (see --force)"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


def _attachments() -> AttachmentStore:
    return AttachmentStore(settings.MOCHI.attachments_path)


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
        help="Session files, or exports of other programs; - is stdin.",
    )
    parser.add_argument(
        "--model", help="Of the new sessions of other programs; else the one that they name."
    )
    parser.add_argument(
        "--new-id", action="store_true", help="Give session files other ids than their own."
    )


async def import_sessions(sessions: SessionManager, options: Options, console: Console) -> int:
    """Import every file that can be imported."""
    mochi = settings.MOCHI
    importer = Importer(
        sessions=sessions,
        attachments=_attachments(),
        reader=AttachmentReader(max_bytes=mochi.max_body_bytes, strip_images=mochi.strip_images),
        max_bytes=mochi.max_import_bytes,
    )
    done = {name: await _import(name, importer, options) for name in options["files"]}
    await sessions.catalogue.bring_up_to_date()  # for a running server, which shares it
    _print_imports(done, console, as_object=options["json"])
    return 1 if any(report.problems for report in done.values()) else 0


async def _import(name: str, importer: Importer, options: Options) -> ImportReport:
    try:
        with NamedTemporaryFile(prefix="mochi-import-") as copy:
            path = await in_daemon_thread(_file_of, name, copy, importer.max_bytes)
            return await importer.run(
                path,
                model=options["model"],
                new_id=options["new_id"],
                advance=Progress(patience=PATIENCE).advance,
            )
    except CannotImport as error:
        return ImportReport(problems=[error])
    except OSError as error:
        return ImportReport(problems=[CannotImport(error.strerror or str(error))])


def _file_of(name: str, copy: IO[bytes], most: int) -> Path:
    """Return the path of a file; of a pipe that of a copy of what comes out of it.

    It runs in a thread that Ctrl-C does not wait for: a pipe may never end.

    Raises:
        CannotImport: More than so many bytes come, or stdin is closed.
        OSError: It cannot be read.
    """
    is_stdin = name == STDIN
    if is_stdin and sys.stdin is None:
        raise CannotImport("stdin is closed")
    if not is_stdin and Path(name).is_file():
        return Path(name)
    # Without a buffer, whose lock the interpreter would want at its end.
    place = sys.stdin.fileno() if is_stdin else name
    with open(place, "rb", buffering=0, closefd=not is_stdin) as file:
        size = 0
        while part := file.read(READ_BYTES):
            size += len(part)
            if size > most:
                raise too_large(most)
            copy.write(part)
    copy.flush()
    return Path(copy.name)


def _print_imports(done: dict[str, ImportReport], console: Console, *, as_object: bool) -> None:
    if as_object:
        console.out.write(as_json(_as_object(done)))
        return
    rows = [_row(name, report) for name, report in done.items() if report.sessions]
    console.out.write(table(rows, IMPORT_COLUMNS) if rows else "Nothing was imported.")
    for name, report in done.items():
        for what, count in report.left_out.items():
            console.out.write(plain(f"{name}: left out {count:,} \u00d7 {what}"))
        for session in report.sessions:
            if session.policies_changed:
                console.out.write(f"{session.session_id} {ASKS}")
    for name, report in done.items():
        for problem in report.problems:
            console.err.write(plain(f"problem: {name}: {problem.message}"))


def _row(name: str, report: ImportReport) -> tuple[object, ...]:
    ids = [session.session_id for session in report.sessions]
    return (
        name,
        report.program,
        ids[0] if len(ids) == 1 else len(ids),
        *(report.count(outcome) for outcome in get_args(Outcome)),
        sum(session.message_count for session in report.sessions),
    )


def _as_object(done: dict[str, ImportReport]) -> JSONObject:
    lists: dict[str, list[JsonValue]] = {"imported": [], "left_out": [], "problems": []}
    for name, report in done.items():
        for session in report.sessions:
            lists["imported"].append({"file": name, **session.as_json()})
        for what, count in report.left_out.items():
            lists["left_out"].append({"file": name, "what": what, "count": count})
        for problem in report.problems:
            lists["problems"].append({"file": name, **problem.details})
    return {**lists}
