"""What the files of the journal hold: in which of them each run is, and how far it has come."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .records import STATE_BEGINS, Note, RunHead, decode

SETTLE_SECONDS = 1.1
"""Seconds after which a second change is sure to change the folder's time."""

_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})\.(?:(\d{1,18})\.jsonl|run)")

_RUN_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")

_OBJECT = b' {"'
_STATES = tuple(b" " + begin for begin in STATE_BEGINS)
"""How the lines that say how far a run has come go on behind its id."""


@dataclass(slots=True, eq=False)
class JournalFile:
    """A file of the journal."""

    path: Path
    owner: str
    """The process that writes it; the run whose own file it is."""
    number: int
    """Which file of its owner it is, from 1; 0 for a run's own file."""
    size: int = 0
    """Bytes of the lines that were read."""
    is_complete: bool = False
    """Whether all is read and no more will be written."""


@dataclass(slots=True, eq=False)
class IndexedRun:
    """A run in the files."""

    session_id: str
    started_at: str
    file: JournalFile
    """Where it begins."""
    begin: int
    last: JournalFile | None = None
    """Where it ended or was parked; None while a process runs it."""
    end: str | None = None
    """How it ended."""
    stop: int = 0
    """Where its last line ends, once it has ended."""
    is_queued: bool = False
    """Whether it waits until the runs before it have ended."""
    origin: JournalFile | None = None
    """File of the process that began it, if it has a file of its own now."""
    owner: str | None = None
    """To whom its session belongs."""

    @property
    def is_parked(self) -> bool:
        """Whether its process has let it go until somebody decides."""
        return self.last is not None and self.end is None


class Position(NamedTuple):
    """How far a run was read."""

    path: Path
    offset: int


class FileIndex:
    """The files of a folder and the runs in them, as of the last refresh."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, JournalFile] = {}
        self._latest: dict[str, JournalFile] = {}
        """By owner."""
        self.runs: dict[str, IndexedRun] = {}
        self._stamp: tuple[int, int] | None = None
        """Identity of the folder and time of its last change, when it was listed last."""
        self._stamped = 0.0
        self._is_settled = False

    def refresh(self) -> None:
        """Read what was written since the last refresh."""
        stamp = self._folder_stamp()
        if stamp != self._stamp or not self._is_settled:
            now = time.monotonic()
            if stamp != self._stamp:
                self._stamp, self._stamped = stamp, now
            self._is_settled = now - self._stamped > SETTLE_SECONDS
            self._list()
        for file in self._files.values():
            if not file.is_complete:
                has_successor = self._latest[file.owner] is not file
                with suppress(OSError):  # removed, or somebody else's
                    self._read_on(file)
                    file.is_complete = has_successor

    def is_current(self, position: Position) -> bool:
        """Return whether nothing was written behind a position; costs two calls of ``stat``."""
        file = self._files.get(position.path)
        return (
            file is not None
            and self._latest.get(file.owner) is file
            and position.offset == file.size == _size(file.path)
            and self._is_settled
            and self._folder_stamp() == self._stamp
        )

    def lines(self, run_id: str, after: Position | None) -> tuple[list[bytes], Position]:
        """Return the lines of a run behind a position, without its id, and the next position."""
        run = self.runs[run_id]
        files = self._files_of(run)
        position = Position(run.file.path, run.begin)
        for index, file in enumerate(files):
            if after is not None and file.path == after.path:
                position = after
                del files[:index]
                break
        prefix = run_id.encode() + b" "
        lines: list[bytes] = []
        for file in files:
            begin = position.offset if file.path == position.path else 0
            stop = run.stop if run.end is not None and file is run.last else None
            data = _read(file.path, begin, stop)
            lines += _lines_with(prefix, data)
            position = Position(file.path, begin + len(data))
        return lines, position

    def removable(self, before: float) -> list[Path]:
        """Return the files older than that in which every run has ended before that."""
        times = {file: _time(file.path) for file in self._files.values()}
        kept = {
            (run.file.owner, number)
            for run in self.runs.values()
            if run.end is None or run.last is None or times.get(run.last, before) >= before
            for number in self._numbers_of(run)
        }
        # An own file outlives its origin, which does not say that the run has ended.
        kept |= {(run.file.owner, 0) for run in self.runs.values() if run.origin is not None}
        return [
            file.path
            for file in self._files.values()
            if (file.owner, file.number) not in kept and times[file] < before
        ]

    def owners(self) -> set[str]:
        """Return the processes, and the runs with own files."""
        return set(self._latest)

    def _numbers_of(self, run: IndexedRun) -> range:
        last = run.last or self._latest[run.file.owner]
        return range(run.file.number, last.number + 1)

    def _files_of(self, run: IndexedRun) -> list[JournalFile]:
        numbers = self._numbers_of(run)
        return [
            file
            for file in self._files.values()
            if file.owner == run.file.owner and file.number in numbers
        ]

    def _list(self) -> None:
        try:
            names = set(os.listdir(self._folder))  # noqa: PTH208 - names are all that is needed
        except (FileNotFoundError, NotADirectoryError):
            names = set()
        if gone := {file for path, file in self._files.items() if path.name not in names}:
            kept = [file for file in self._files.values() if file not in gone]
            self._files = {file.path: file for file in kept}
            self._latest = {file.owner: file for file in kept}
            self.runs = {
                run_id: run for run_id, run in self.runs.items() if not gone & {run.file, run.last}
            }
            for run in self.runs.values():
                if run.origin in gone:
                    run.origin = None
        new = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
        for match in sorted(new, key=lambda match: int(match[2] or 0)):
            if (path := self._folder / match[0]) not in self._files:
                file = JournalFile(path, match[1], int(match[2] or 0))
                self._files[path] = self._latest[file.owner] = file

    def _read_on(self, file: JournalFile) -> None:
        if _size(file.path) == file.size:
            return
        data = _read(file.path, file.size)
        at = data.find(_OBJECT)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if _RUN_ID.fullmatch(data, begin, at) and data.startswith(_STATES, at):
                run_id, line = data[begin:at].decode(), decode(data[at + 1 : end])
                if isinstance(line, RunHead):
                    self._add(run_id, line, file, file.size + begin)
                elif isinstance(line, Note):
                    self._change(run_id, line, file, file.size + end + 1)
            at = data.find(_OBJECT, end)
        file.size += len(data)

    def _add(self, run_id: str, head: RunHead, file: JournalFile, begin: int) -> None:
        known = self.runs.get(run_id)
        if known is not None and known.file.owner == file.owner:  # it was queued
            known.started_at, known.is_queued = head.started_at, head.is_queued
        elif known is None or file.number == 0:  # an own file has all that others have of the run
            run = self.runs[run_id] = IndexedRun(head.session_id, head.started_at, file, begin)
            run.is_queued, run.owner = head.is_queued, head.owner
            run.origin = None if known is None else known.file
        elif known.file.number == 0:
            known.origin = file

    def _change(self, run_id: str, note: Note, file: JournalFile, stop: int) -> None:
        run = self.runs.get(run_id)
        if run is None or run.file.owner != file.owner:
            return
        if note.name == "end":
            run.last, run.end, run.stop = file, sys.intern(str(note.data.get("state"))), stop
        else:
            run.last = file if note.name == "waiting" else None

    def _folder_stamp(self) -> tuple[int, int] | None:
        try:
            status = self._folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_ino, status.st_mtime_ns


def _read(path: Path, begin: int, end: int | None = None) -> bytes:
    """Read whole lines; none of a file that was removed."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(begin)
            data = file.read() if end is None else file.read(max(end - begin, 0))
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def _lines_with(prefix: bytes, data: bytes) -> Iterator[bytes]:
    """Yield what follows the prefix in each line that begins with it."""
    at = data.find(prefix)
    while at >= 0:
        end = data.find(b"\n", at)
        if at == 0 or data[at - 1 : at] == b"\n":
            yield data[at + len(prefix) : end]
        at = data.find(prefix, end)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
