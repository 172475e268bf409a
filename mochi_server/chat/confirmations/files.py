"""Confirmations as files of one folder, which several processes share.

``{id}.json`` is a confirmation, and ``{id}.decision.json`` its decision: it gets its name by a hard
link, so that the first one counts. Nothing is ever rewritten. What is consumed goes to
``history.jsonl``; a crash between leaves it decided, and consuming it again makes a second line,
which readers skip.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...core.aio import in_thread, in_thread_to_completion, yield_to_loop
from ...core.files import (
    NOT_PLAIN,
    PRIVATE_FILE,
    give_to_folder_owner,
    is_steady,
    make_folder,
    read_plain,
    replace_file,
)
from ...core.leases import FileLock, is_abandoned
from ...errors import ConfirmationUnavailable, MochiError
from .confirmation import (
    CONFIRMATION,
    DECISION,
    RECORD,
    SYSTEM_CLOCK,
    Clock,
    Confirmation,
    ConfirmationDecision,
    ConfirmationRecord,
    dump,
)
from .store import LOST, ConfirmationStore, StoredConfirmation

logger = logging.getLogger(__name__)

ASKED_SUFFIX = ".json"
DECIDED_SUFFIX = ".decision.json"
HISTORY = "history.jsonl"
OLD_HISTORY = "history.1.jsonl"
MAX_HISTORY_BYTES = 8_000_000
"""Size at which the history becomes the old history, which is then forgotten."""

EMPTY_SECONDS = 5.0
"""Seconds after which an unreadable decision counts as a denial."""

LEFTOVER_SECONDS = 60.0
"""Age at which a temporary file is one of a process that was killed."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE = re.compile(rb'\{"confirmation":\{"confirmation_id":"([A-Za-z0-9_-]+)"')
"""The beginning of a line of the history, whose id is found without reading the rest."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn what the disk refuses into ConfirmationUnavailable."""
    try:
        yield
    except OSError as error:
        raise ConfirmationUnavailable(reason=error.strerror or str(error)) from error


@dataclass(slots=True, kw_only=True)
class _Scan:
    """What has changed in the folder since the last scan."""

    stamp: tuple[int, int] | None
    """Inode and time of the folder; None if they do not yet tell whether it has changed."""
    stored: list[StoredConfirmation] = field(default_factory=list)
    """New confirmations, and known ones that are decided now."""
    gone: dict[str, ConfirmationDecision | None] = field(default_factory=dict)
    """Ids that are there no more, with the decision if the history has it."""


class FileConfirmationStore(ConfirmationStore):
    """Keeps confirmations in a folder, which is made when it is needed.

    The index in memory is compared with the folder when somebody asks for it, and 20 times a second
    while somebody watches; nothing is read while the time of the folder stays.
    """

    poll_seconds = 0.05

    def __init__(self, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock=clock)
        self._folder = folder
        self._stamp: tuple[int, int] | None = None
        self._lock = asyncio.Lock()
        self._unreadable: set[str] = set()
        """Ids of files that were reported."""

    async def _add(self, confirmation: Confirmation) -> None:
        name = confirmation.confirmation_id
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the id of a confirmation.")
        await in_thread_to_completion(self._write_new, name, dump(confirmation.fields()))

    async def _find(self, confirmation_id: str) -> StoredConfirmation | None:
        return await in_thread(self._read, confirmation_id)

    async def _settle(self, confirmation: Confirmation, decision: ConfirmationDecision) -> bool:
        return await in_thread_to_completion(
            self._write_decision, confirmation.confirmation_id, dump(decision.payload())
        )

    async def _remove(self, confirmation_id: str) -> None:
        await in_thread_to_completion(self._unlink, confirmation_id)

    async def _append(self, record: ConfirmationRecord) -> None:
        await in_thread_to_completion(self._append_line, dump(record.fields()))

    async def _refresh(self) -> None:
        async with self._lock:
            scan = await in_thread(self._scan)
            if scan is None:
                return
            self._stamp = scan.stamp
            for stored in scan.stored:
                self._learn(stored)
            for confirmation_id, decision in scan.gone.items():
                self._forget(confirmation_id, decision)

    async def history(
        self, *, limit: int = 100, before: str | None = None
    ) -> list[ConfirmationRecord]:
        return await in_thread(self._read_history, limit, before)

    async def _record_of(self, confirmation_id: str) -> ConfirmationRecord | None:
        records = await in_thread(self._read_records, {confirmation_id})
        return records.get(confirmation_id)

    async def check(self) -> bool:
        return await in_thread(self._is_writable)

    # In threads

    @_translate_errors()
    def _write_new(self, confirmation_id: str, content: bytes) -> None:
        path = self._folder / (confirmation_id + ASKED_SUFFIX)
        try:
            replace_file(path, [content], new=True, private=True)
        except FileExistsError:
            if not self._folder.is_dir():
                raise

    @_translate_errors()
    def _write_decision(self, confirmation_id: str, content: bytes) -> bool:
        path = self._folder / (confirmation_id + DECIDED_SUFFIX)
        try:
            replace_file(path, [content], new=True, private=True)
        except FileExistsError:
            if not self._folder.is_dir():
                raise
            return False
        if (self._folder / (confirmation_id + ASKED_SUFFIX)).exists():
            return True
        # It was consumed: by whoever followed this decision, or before it came. The history, which
        # is written before the confirmation goes, tells which.
        record = self._read_records({confirmation_id}).get(confirmation_id)
        path.unlink(missing_ok=True)
        return record is not None and dump(record.decision.payload()) == content

    @_translate_errors()
    def _unlink(self, confirmation_id: str) -> None:
        for suffix in (ASKED_SUFFIX, DECIDED_SUFFIX):
            (self._folder / (confirmation_id + suffix)).unlink(missing_ok=True)

    @_translate_errors()
    def _read(self, confirmation_id: str) -> StoredConfirmation | None:
        if _NAME.fullmatch(confirmation_id) is None:
            return None
        decision = self._read_decision(confirmation_id)  # first: it is removed last
        confirmation = self._read_confirmation(confirmation_id)
        return None if confirmation is None else StoredConfirmation(confirmation, decision)

    def _read_confirmation(self, confirmation_id: str) -> Confirmation | None:
        """Return a confirmation; None if there is none that can be understood."""
        path = self._folder / (confirmation_id + ASKED_SUFFIX)
        try:
            confirmation = CONFIRMATION.validate_python(json.loads(read_plain(path)[0]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno not in NOT_PLAIN:
                raise
            self._report(confirmation_id, error)
            return None
        return confirmation if confirmation.confirmation_id == confirmation_id else None

    def _read_decision(self, confirmation_id: str) -> ConfirmationDecision | None:
        """Return a decision; one that nobody can read, and nobody is writing, is a denial."""
        path = self._folder / (confirmation_id + DECIDED_SUFFIX)
        try:
            return DECISION.validate_python(json.loads(read_plain(path)[0]))
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno not in NOT_PLAIN:
                raise
        try:
            # Where the disk has no hard links, a decision is empty at first.
            return LOST if time.time() - path.lstat().st_mtime > EMPTY_SECONDS else None
        except FileNotFoundError:
            return None

    @_translate_errors()
    def _scan(self) -> _Scan | None:
        """Compare the folder with the index; return None if it is as it was at the last scan."""
        stamp = self._stamp_of_folder()
        if stamp is not None and stamp == self._stamp:
            return None
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - of thousands, texts suffice
        except FileNotFoundError:
            names = []
        decided = {
            name.removesuffix(DECIDED_SUFFIX) for name in names if name.endswith(DECIDED_SUFFIX)
        }
        asked = {name.removesuffix(ASKED_SUFFIX) for name in names if name.endswith(ASKED_SUFFIX)}
        asked -= {f"{each}.decision" for each in decided}
        scan = _Scan(stamp=stamp)
        undecided = {each for each in decided & asked if self._is_undecided(each)}
        for number, confirmation_id in enumerate((asked - self._stored.keys()) | undecided):
            self._scan_one(confirmation_id, scan, is_decided=confirmation_id in decided)
            if number % 100 == 0:
                yield_to_loop()
        scan.stored.sort(key=lambda each: each.confirmation.asked_at)
        gone = self._stored.keys() - asked
        unknown = set(filter(self._is_undecided, gone))
        records = self._read_records(unknown) if self._watchers else {}
        for confirmation_id in gone:
            record = records.get(confirmation_id)
            scan.gone[confirmation_id] = None if record is None else record.decision
        self._sweep(
            [*(each + DECIDED_SUFFIX for each in decided - asked), *filter(_is_temporary, names)]
        )
        return scan

    def _is_undecided(self, confirmation_id: str) -> bool:
        known = self._stored.get(confirmation_id)
        return known is not None and known.decision is None

    def _scan_one(self, confirmation_id: str, scan: _Scan, *, is_decided: bool) -> None:
        try:
            stored = self._read(confirmation_id)
        except ConfirmationUnavailable as error:  # one bad file does not hide the others
            self._report(confirmation_id, error)
            scan.stamp = None  # look again
            return
        if stored is not None:
            scan.stored.append(stored)
            if is_decided and stored.decision is None:
                scan.stamp = None  # look again

    def _report(self, confirmation_id: str, error: Exception) -> None:
        if confirmation_id not in self._unreadable:
            self._unreadable.add(confirmation_id)
            text = error if isinstance(error, OSError | MochiError) else type(error).__name__
            logger.warning("The confirmation %s cannot be read: %s", confirmation_id, text)

    def _stamp_of_folder(self) -> tuple[int, int] | None:
        try:
            status = self._folder.stat()
        except FileNotFoundError:
            return (0, 0)
        return (status.st_ino, status.st_mtime_ns) if is_steady(status.st_mtime_ns) else None

    def _sweep(self, names: list[str]) -> None:
        """Remove what processes left behind that were killed."""
        for name in names:
            with suppress(OSError):
                if is_abandoned(path := self._folder / name, LEFTOVER_SECONDS):
                    path.unlink()

    @_translate_errors()
    def _append_line(self, line: bytes) -> None:
        path = self._folder / HISTORY
        make_folder(self._folder, private=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(path, flags, PRIVATE_FILE)
        try:
            give_to_folder_owner(path, handle)
            size = os.fstat(handle).st_size
            is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            content = (b"\n" if is_torn else b"") + line + b"\n"
            if os.write(handle, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
            os.fsync(handle)
        finally:
            os.close(handle)
        if size + len(content) > MAX_HISTORY_BYTES:
            self._rotate(path)

    def _rotate(self, path: Path) -> None:
        lock = FileLock(self._folder / "history.lock")
        if lock.acquire():
            try:
                if path.stat().st_size > MAX_HISTORY_BYTES:  # else another process has done it
                    path.replace(self._folder / OLD_HISTORY)
            finally:
                lock.release(remove=True)

    @_translate_errors()
    def _read_history(self, limit: int, before: str | None) -> list[ConfirmationRecord]:
        lines = self._history_lines()
        if before is not None:
            for confirmation_id, _ in lines:
                if confirmation_id == before:
                    break
        records: dict[str, ConfirmationRecord] = {}
        for confirmation_id, line in lines:
            if len(records) == limit:
                break
            if confirmation_id not in (before, *records) and (record := _record_in(line)):
                records[confirmation_id] = record
        return list(records.values())

    @_translate_errors()
    def _read_records(self, ids: set[str]) -> dict[str, ConfirmationRecord]:
        records: dict[str, ConfirmationRecord] = {}
        for confirmation_id, line in self._history_lines() if ids else ():
            if confirmation_id in ids and (record := _record_in(line)):
                records[confirmation_id] = record
                if len(records) == len(ids):
                    break
        return records

    def _history_lines(self) -> Iterator[tuple[str, bytes]]:
        """Give id and text of each line of the history, the latest first."""
        for name in (HISTORY, OLD_HISTORY):
            with suppress(FileNotFoundError):
                for line in reversed(read_plain(self._folder / name)[0].splitlines()):
                    if (match := _LINE.match(line)) is not None:
                        yield match[1].decode(), line

    def _is_writable(self) -> bool:
        path = self._folder / f".check.{os.getpid()}.tmp"
        try:
            make_folder(self._folder, private=True)
            path.write_bytes(b"\0" * 4096)
            path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _record_in(line: bytes) -> ConfirmationRecord | None:
    """Return the entry of a line of the history; None for a torn one."""
    try:
        return RECORD.validate_python(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")
