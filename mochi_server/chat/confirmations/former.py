"""Confirmations in files, as servers have kept them before they had a state: taken over once.

``{id}.json`` is a confirmation, ``{id}.decision.json`` its decision, ``history.1.jsonl`` and then
``history.jsonl`` have the lines of the history.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...core.files import read_plain
from ...state import Statements
from .confirmation import CONFIRMATION, DECISION, RECORD, dump

logger = logging.getLogger(__name__)

ROWS = HISTORY = "confirmations"
"""Kind of the rows, and log of the history, in the state."""

MAX_HISTORY_BYTES = 16_000_000

DECIDED_SUFFIX = ".decision.json"


class FormerConfirmations:
    """The folder of confirmations; see ``Conversion``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_needed(self) -> bool:
        return self._folder.is_dir()

    def convert(self, statements: Statements) -> None:
        """Store what is pending or decided, and the history; what cannot be read is reported."""
        for path in self._folder.glob("[!.]*.json"):
            if not path.name.endswith(DECIDED_SUFFIX):
                try:
                    name, value = _row_of(path)
                except (OSError, ValueError, RecursionError) as error:
                    logger.warning("%s cannot be read: %s", path, type(error).__name__)
                    continue
                statements.add_row(ROWS, name, value)
        for name in ("history.1.jsonl", "history.jsonl"):
            for confirmation_id, line in _lines_of(self._folder / name):
                statements.append_line(HISTORY, confirmation_id, line, keep_bytes=MAX_HISTORY_BYTES)

    def finish(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _row_of(path: Path) -> tuple[str, bytes]:
    """Return id and value of the row for a file of a confirmation, and of its decision.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read.
    """
    fields = json.loads(read_plain(path)[0])
    confirmation = CONFIRMATION.validate_python(fields)
    if confirmation.confirmation_id != path.stem:
        raise ValueError("it has the name of another one")
    decided = path.with_name(path.stem + DECIDED_SUFFIX)
    if not os.path.lexists(decided):
        return path.stem, dump(fields)
    try:
        decision = DECISION.validate_python(json.loads(read_plain(decided)[0])).payload()
    except (OSError, ValueError, RecursionError):
        decision = {}  # it cannot be understood: a denial
    return path.stem, b"\n".join((dump(fields), dump(decision)))


def _lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield id and text of each line of a history, but for torn ones."""
    try:
        lines = read_plain(path)[0].splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, type(error).__name__)
        return
    for line in lines:
        try:
            record = RECORD.validate_python(json.loads(line))
        except (ValueError, RecursionError):
            continue
        yield record.confirmation.confirmation_id, line
