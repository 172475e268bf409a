"""The audit log: who has decided and changed what, a JSON object a line.

It has names and ids, never arguments, texts, tokens or other secrets.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from ..errors import InvalidRequest, JSONObject, StorageError
from .aio import in_thread
from .caller import current_caller
from .clock import timestamp, utc_now
from .files import PRIVATE_FILE, give_to_folder_owner, locked, make_folder, read_plain
from .logs import request_id

logger = logging.getLogger(__name__)

MAX_BYTES = 10_000_000
"""Size from which a new file is begun."""

KEPT_FILES = 5
"""Older files that are kept, as ``audit.jsonl.1`` and so on."""

MOST_WAITING = 1_000
"""Entries that a process keeps until they can be written; after so many the oldest are lost."""

MAX_TEXT = 200
"""Characters of a value that is kept."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

Outcome = Literal["done", "refused", "failed"]

_details: ContextVar[JSONObject | None] = ContextVar("mochi_audit_details", default=None)


def begin_details() -> None:
    """Let ``add_details`` collect for this task from now on."""
    _details.set({})


def details() -> JSONObject:
    return _details.get() or {}


def add_details(**details: str | bool | None) -> None:
    """Say what a change is about, where neither the route nor its address says it."""
    collected = _details.get()
    if collected is not None:
        collected.update(details)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A part of the log, the latest entry first."""

    entries: list[JSONObject]
    next_cursor: str | None
    """The cursor of the next page; None on the last one."""


class AuditLog:
    """Appends to the log of a data folder, and reads it."""

    def __init__(self, path: Path | None, lock_path: Path) -> None:
        """Take the paths, and open no file; without one nothing is written."""
        self.path = path
        self._lock_path = lock_path
        self._in_process = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._logged = ""

    async def record(self, action: str, outcome: Outcome = "done", **target: object) -> None:
        """Write an entry about what the caller of this task has done.

        A log that cannot be written stops nothing: the server's log says so once, and the entry is
        written before the next one of this process that can be.
        """
        if self.path is not None:
            await in_thread(self.write, self._line(action, outcome, target))

    @staticmethod
    def _line(action: str, outcome: Outcome, target: dict[str, object]) -> bytes:
        caller = current_caller()
        entry = {
            "time": timestamp(utc_now()),
            "who": caller.name,
            "address": caller.address and caller.address[:MAX_TEXT],
            "request_id": request_id() or None,
            "action": action,
            "target": {
                name: value[:MAX_TEXT] if isinstance(value, str) else value
                for name, value in target.items()
                if value is not None
            },
            "outcome": outcome,
        }
        try:
            return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        except TypeError:  # half a character, of an odd name of a file
            entry["target"] = {name: ascii(value) for name, value in target.items()}
            return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)

    def record_now(self, action: str, **target: object) -> None:
        """Write an entry about what a command has done, in this thread."""
        if self.path is not None:
            self.write(self._line(action, "done", target))

    def write(self, line: bytes) -> None:
        """Append a line, after those that could not be written; begin a new file if it is long."""
        assert self.path is not None  # noqa: S101 - the callers check it
        with self._in_process:
            self._waiting.append(line)
            try:
                make_folder(self._lock_path.parent, private=True)
                with locked(self._lock_path):
                    size = self._append(b"".join(self._waiting))
                    self._waiting.clear()
                    if size >= MAX_BYTES:
                        self._rotate()
            except OSError as error:
                if self._logged != str(error):
                    self._logged = str(error)
                    logger.warning("The audit log cannot be written: %s", error)
            else:
                self._logged = ""

    def _append(self, lines: bytes) -> int:
        """Append them all or nothing, and return the size of the file."""
        assert self.path is not None  # noqa: S101 - the callers check it
        handle = os.open(self.path, _APPEND, PRIVATE_FILE)
        try:
            give_to_folder_owner(self.path, handle)
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            size = status.st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # torn by a crash
                lines = b"\n" + lines
            if os.write(handle, lines) < len(lines):
                os.ftruncate(handle, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return size + len(lines)
        finally:
            os.close(handle)

    def _rotate(self) -> None:
        files = [*self._files()]
        files[-1].unlink(missing_ok=True)
        for newer, older in zip(files[-2::-1], files[:0:-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)

    def _files(self) -> Iterator[Path]:
        """Yield the file and the older ones, the latest first."""
        if self.path is not None:
            yield self.path
            for number in range(1, KEPT_FILES + 1):
                yield self.path.with_name(f"{self.path.name}.{number}")

    async def page(self, limit: int, cursor: str | None = None) -> AuditPage:
        """Return entries, the latest first.

        Raises:
            InvalidRequest: the cursor is none of this list.
            StorageError: the log cannot be read.
        """
        try:
            return await in_thread(self._page, limit, cursor)
        except OSError as error:
            text = f"The audit log cannot be read: {error.strerror}"
            raise StorageError.because(error, text) from error

    def _page(self, limit: int, cursor: str | None) -> AuditPage:
        inode, end = (None, None) if cursor is None else _place_of(cursor)
        entries: list[JSONObject] = []
        for path in self._files():
            try:
                content, status = read_plain(path)
            except FileNotFoundError:
                continue
            if inode is not None:
                if status.st_ino != inode:
                    continue
                content, inode = content[:end], None
            lines = content.splitlines(keepends=True)
            position = len(content)
            while lines:
                if len(entries) == limit:
                    return AuditPage(entries, f"{status.st_ino}-{position}")
                line = lines.pop()
                position -= len(line)
                with contextlib.suppress(orjson.JSONDecodeError):  # torn by a crash
                    entries.append(orjson.loads(line))
        return AuditPage(entries, None)


NO_AUDIT_LOG = AuditLog(None, Path())
"""A log that is never written."""


def _place_of(cursor: str) -> tuple[int, int]:
    inode, _, end = cursor.partition("-")
    if not (inode.isdecimal() and end.isdecimal() and len(cursor) < 64):  # noqa: PLR2004 - digits
        raise InvalidRequest("The cursor is none of this list.", details={"cursor": cursor})
    return int(inode), int(end)
