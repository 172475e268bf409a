"""``manage.py sessions export``: write sessions to files."""

from __future__ import annotations

import argparse
from pathlib import Path

from django.core.management.base import CommandError

from mochi_project.management.console import as_json, plain_lines, progress, table
from mochi_server.core.aio import in_thread
from mochi_server.core.files import replace_file
from mochi_server.errors import MochiError
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.storage import JSONFileStorage
from mochi_server.sessions.transfer.exporting import ExportFormat, export_session

from .action import Action, Console, Options, add_json

COLUMNS = ("SESSION", "FILE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``ID | --all [--format json|markdown|jsonl] [--output PATH] [--force] [--json]``."""
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
    add_json(parser)


async def run(sessions: SessionManager, options: Options, console: Console) -> int:
    """Write one session to stdout or a file, or all to a folder."""
    to = ExportFormat(options["format"])
    output: Path | None = options["output"]
    if output is None:
        if options["all"]:
            raise CommandError("--all wants a folder: --output DIR", returncode=2)
        text = (await export_session(sessions, options["session_id"], to)).decode()
        console.out.write(plain_lines(text) if console.out.isatty() else text, ending="")
        return 0
    check_output(output, sessions)
    if options["all"]:
        targets = await targets_in(output, sessions, to)
    else:
        await sessions.get(options["session_id"])
        targets = {options["session_id"]: output}
    export = Export(sessions, to, force=options["force"])
    await export.run(targets)
    report(export, console, as_object=options["json"])
    return 1 if export.problems else 0


async def targets_in(folder: Path, sessions: SessionManager, to: ExportFormat) -> dict[str, Path]:
    """Return a path in the folder for every session."""
    page = await sessions.list()
    names = [str(line["session_id"]) for line in (*page.entries, *page.problems)]
    return {name: folder / f"{name}{to.suffix}" for name in names}


class Export:
    """An export of several sessions."""

    def __init__(self, sessions: SessionManager, to: ExportFormat, *, force: bool) -> None:
        self._sessions = sessions
        self._to = to
        self._force = force
        self.written: dict[str, Path] = {}
        self.problems: dict[str, str] = {}

    async def run(self, targets: dict[str, Path]) -> None:
        """Write each session; errors are collected in ``problems``."""
        bar = progress("sessions") if len(targets) > 1 else None
        for number, (session_id, path) in enumerate(targets.items(), start=1):
            try:
                await self._write(session_id, path)
                self.written[session_id] = path
            except MochiError as error:
                self.problems[session_id] = error.message
            except FileExistsError:
                self.problems[session_id] = f"{path} is there already (see --force)"
            except OSError as error:
                self.problems[session_id] = f"{path} cannot be written: {error.strerror}"
            if bar is not None:
                bar.advance(number, len(targets))

    async def _write(self, session_id: str, path: Path) -> None:
        content = await export_session(self._sessions, session_id, self._to)
        await in_thread(replace_file, path, [content], new=not self._force, private=True)


def check_output(output: Path, sessions: SessionManager) -> None:
    """Check that the output is outside the sessions folder, where a server may be writing.

    Raises:
        CommandError: the file or folder is among them.
    """
    storage = sessions.storage
    if isinstance(storage, JSONFileStorage) and output.resolve().is_relative_to(
        storage.folder.resolve()
    ):
        raise CommandError(f"{output} is in the folder of the sessions themselves.")


def report(export: Export, console: Console, *, as_object: bool) -> None:
    """Print what was written, and what failed."""
    written = {session_id: str(path) for session_id, path in export.written.items()}
    if as_object:
        problems = [{"session_id": name, "reason": why} for name, why in export.problems.items()]
        files = [{"session_id": name, "file": path} for name, path in written.items()]
        console.out.write(as_json({"exported": files, "problems": problems}))
        return
    console.out.write(table([*written.items()], COLUMNS) if written else "Nothing was exported.")
    for session_id, reason in export.problems.items():
        console.problem(session_id, reason)


ACTION = Action("Write a session, or all, as files for others.", add_arguments, run)
