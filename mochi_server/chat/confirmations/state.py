"""Confirmations in the state that processes share, or in that of one process.

A row is the JSON of a confirmation, with that of its decision in a second line: exactly one process
gets it there. What is consumed is a line of the history.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from ...core.aio import yield_to_loop
from ...core.caller import SERVER, Caller
from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.json_text import parse_json
from ...core.outages import first_line
from ...errors import ConfirmationUnavailable, StorageError
from ...state import Signals, SQLiteState, State, Statements, StateSignals, Version
from .confirmation import (
    CONFIRMATION,
    DECISION,
    LOST,
    RECORD,
    Confirmation,
    ConfirmationDecision,
    ConfirmationRecord,
    StoredConfirmation,
    dump,
)
from .former import HISTORY, MAX_HISTORY_BYTES, ROWS
from .store import ConfirmationStore

T = TypeVar("T")

logger = logging.getLogger(__name__)

MANY: Final = 100
"""Confirmations after which a thread that reads them lets others run."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn what the state refuses into ConfirmationUnavailable."""
    try:
        yield
    except StorageError as error:
        cause = error.__cause__
        assert isinstance(cause, Exception)  # noqa: S101 - of the disk or the database
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise ConfirmationUnavailable.because(cause, reason=reason or first_line(cause)) from cause


@dataclass(slots=True, kw_only=True)
class _Changes:
    """What has changed since the last look."""

    version: Version
    stored: list[StoredConfirmation]
    """New confirmations, and known ones that are decided now."""
    gone: dict[str, ConfirmationDecision | None] = field(default_factory=dict)
    """Ids that are there no more, with the decision if the history has it."""


class StateConfirmationStore(ConfirmationStore):
    """Keeps confirmations in a state; without one, in memory.

    What this process knows is compared with the state when somebody asks for it, and at each signal
    while somebody watches; nothing is read while the version stays.
    """

    def __init__(
        self,
        state: State | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        signals: Signals | None = None,
    ) -> None:
        self._state = state or SQLiteState()
        super().__init__(clock=clock, signals=signals or StateSignals(self._state))
        self._version = Version("", 0)
        """Of what this process knows."""
        self._lock = asyncio.Lock()
        self._unreadable: set[str] = set()
        """Ids that were reported, and the history."""

    async def _read(self, work: Callable[[Statements], T]) -> T:
        with _translate_errors():
            return await self._state.read(work)

    async def _write(self, work: Callable[[Statements], T]) -> T:
        with _translate_errors():
            return await self._state.write(work)

    async def _add(self, confirmation: Confirmation) -> None:
        name = confirmation.confirmation_id
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the id of a confirmation.")
        content = dump(confirmation.fields())
        await self._write(lambda state: state.add_row(ROWS, name, content))

    async def find(self, confirmation_id: str) -> StoredConfirmation | None:
        if _NAME.fullmatch(confirmation_id) is None:
            return None

        def find(state: Statements) -> StoredConfirmation | None:
            row = state.row(ROWS, confirmation_id)
            return None if row is None else self._parse(row.id, row.value)

        return await self._read(find)

    async def _settle(self, confirmation: Confirmation, decision: ConfirmationDecision) -> bool:
        name, content = confirmation.confirmation_id, dump(decision.payload())
        is_repeated = False

        def settle(state: Statements) -> bool:
            nonlocal is_repeated
            was_tried, is_repeated = is_repeated, True
            row = state.row(ROWS, name)
            if row is None:
                record = self._record_in(name, state) if was_tried else None
                return record is not None and record.decision == decision
            if b"\n" in row.value:
                return was_tried and row.value.endswith(b"\n" + content)
            return state.replace_row(ROWS, row, row.value + b"\n" + content)

        return await self._write(settle)

    async def _remove(self, confirmation_id: str) -> None:
        await self._write(lambda state: state.remove_row(ROWS, confirmation_id))

    async def _append(self, record: ConfirmationRecord) -> None:
        name, line = record.confirmation.confirmation_id, dump(record.fields())
        await self._write(
            lambda state: state.append_line(HISTORY, name, line, keep_bytes=MAX_HISTORY_BYTES)
        )

    async def _refresh(self) -> None:
        async with self._lock:
            with _translate_errors():
                if await self._state.version() == self._version:
                    return
            changes = await self._read(self._changes)
            self._version = changes.version
            for stored in changes.stored:
                self._learn(stored)
            for confirmation_id, decision in changes.gone.items():
                self._forget(confirmation_id, decision)

    async def history(
        self, *, limit: int = 100, before: str | None = None, caller: Caller = SERVER
    ) -> list[ConfirmationRecord]:
        if before is not None and _NAME.fullmatch(before) is None:
            return []

        def records(state: Statements) -> list[ConfirmationRecord]:
            wanted = limit
            while True:
                lines = state.last_lines(HISTORY, limit=wanted, before=before)
                records = [each for each in map(self._record, lines) if each is not None]
                found = [each for each in records if caller.sees(each.confirmation.owner)]
                if len(found) >= limit or len(lines) < wanted:
                    return found[:limit]
                wanted *= 2  # some cannot be read, or are of others

        return await self._read(records)

    async def _record_of(self, confirmation_id: str) -> ConfirmationRecord | None:
        if _NAME.fullmatch(confirmation_id) is None:
            return None
        return await self._read(partial(self._record_in, confirmation_id))

    async def aclose(self) -> None:
        await super().aclose()
        await self._signals.aclose()
        await self._state.aclose()

    # In threads

    def _changes(self, state: Statements) -> _Changes:
        """Compare the state with what is known."""
        version = state.version()
        is_same = version.identity == self._version.identity
        known = set(self._stored)
        changes = _Changes(version=version, stored=[])
        rows = state.rows_since(ROWS, self._version.number if is_same else 0)
        for number, row in enumerate(rows):
            stored = self._parse(row.id, row.value)
            if stored is not None and stored != self._stored.get(row.id):
                changes.stored.append(stored)
            if number % MANY == MANY - 1:
                yield_to_loop()
        changes.stored.sort(key=lambda each: each.confirmation.asked_at)
        for confirmation_id in known - state.row_ids(ROWS):
            is_decided = self._stored[confirmation_id].decision is not None
            record = None
            if self._watchers and not is_decided:
                record = self._record_in(confirmation_id, state)
            changes.gone[confirmation_id] = None if record is None else record.decision
        return changes

    def _parse(self, confirmation_id: str, value: bytes) -> StoredConfirmation | None:
        """Return what is stored; None if nobody can understand it. Such a decision is a denial."""
        asked, _, decided = value.partition(b"\n")
        try:
            confirmation = CONFIRMATION.validate_python(parse_json(asked))
        except ValueError as error:
            if confirmation_id not in self._unreadable:
                self._unreadable.add(confirmation_id)
                text = type(error).__name__
                logger.warning("The confirmation %s cannot be read: %s", confirmation_id, text)
            return None
        if not decided:
            return StoredConfirmation(confirmation)
        return StoredConfirmation(confirmation, _decision_in(decided))

    def _record_in(self, confirmation_id: str, state: Statements) -> ConfirmationRecord | None:
        line = state.line(HISTORY, confirmation_id)
        return None if line is None else self._record(line)

    def _record(self, line: bytes) -> ConfirmationRecord | None:
        """Return an entry of the history; None if nobody can understand it."""
        try:
            return RECORD.validate_python(parse_json(line))
        except ValueError as error:
            if HISTORY not in self._unreadable:
                self._unreadable.add(HISTORY)
                text = "An entry of the history of confirmations cannot be read: %s"
                logger.warning(text, type(error).__name__)
            return None


def _decision_in(text: bytes) -> ConfirmationDecision:
    try:
        return DECISION.validate_python(parse_json(text))
    except ValueError:
        return LOST
