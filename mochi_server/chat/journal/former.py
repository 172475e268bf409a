"""Runs in files, as servers have kept them before they had a state: taken over once.

``<process>.<number>.jsonl`` has lines of a process's runs, each ``<run id> <JSON>``; ``<run
id>.run`` has all lines of a run that another process had taken.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core.files import read_plain
from ...core.leases import remove_free_locks
from ...state import Statements
from .records import STATE_BEGINS, Note, RunHead, decode
from .rows import RUNS, StoredRun, Stretch

logger = logging.getLogger(__name__)

LOG: Final = "former"
"""The log of all lines."""

_LINE = re.compile(rb"([A-Za-z0-9_-]{1,64}) ([{\[].*)")


class FormerRuns:
    """The folder of runs; see ``Conversion``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_needed(self) -> bool:
        return next(self._files(), None) is not None

    def _files(self) -> Iterator[Path]:
        for pattern in ("*.jsonl", "*.run"):
            yield from self._folder.glob(pattern)

    def convert(self, statements: Statements) -> None:
        """Store all runs; none of them is executed, as their processes have ended."""
        runs: dict[str, list[bytes]] = {}
        for path in sorted(self._folder.glob("*.jsonl")):
            for run_id, line in _lines_of(path):
                runs.setdefault(run_id, []).append(line)
        for path in self._folder.glob("*.run"):
            runs[path.stem] = [line for run_id, line in _lines_of(path) if run_id == path.stem]
        for place, (run_id, lines) in enumerate(runs.items(), 1):
            if (entry := _entry_of(lines, Stretch(LOG, place - 1, place))) is not None:
                prefix = run_id.encode() + b" "
                data = b"".join([prefix + line + b"\n" for line in lines])
                statements.put_part(LOG, place, data)
                statements.add_row(RUNS, run_id, entry.encode())

    def finish(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)
        for path in self._folder.glob("*.tmp"):
            path.unlink(missing_ok=True)
        remove_free_locks(self._folder, "*.lock")  # processes hold some already


def _lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield run and JSON of each line, but for torn ones."""
    try:
        *lines, _ = read_plain(path)[0].split(b"\n")
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, type(error).__name__)
        return
    for line in lines:
        if (match := _LINE.fullmatch(line)) is not None:
            yield match[1].decode(), match[2]


def _entry_of(lines: list[bytes], stretch: Stretch) -> StoredRun | None:
    """Return the row of a run; None without its head."""
    entry: StoredRun | None = None
    for line in lines:
        if not line.startswith(STATE_BEGINS):
            continue
        change = decode(line)
        if isinstance(change, RunHead):
            entry = StoredRun.of(change, stretch)
        elif isinstance(change, Note) and entry is not None and change.state is not None:
            entry = replace(entry, state=change.state)
    return entry
