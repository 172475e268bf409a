"""Copy all sessions of a storage into another one, and compare the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from ..core.aio import run_concurrently
from ..core.progress import Advance
from ..errors import MochiError, SessionExists, SessionNotFound, StorageUnavailable
from .storage.base import Entry, SessionChanged, SessionStorage

AT_ONCE = 8
"""Sessions that are copied at the same time, each completely in memory."""

BATCH = 64
"""Sessions between two reports of the progress."""


class CopyOutcome(str, Enum):
    """What became of a session."""

    COPIED = "copied"
    REPLACED = "replaced"
    EQUAL = "equal"
    """It was there already."""
    DIFFERENT = "different"
    """Another one with its id is there, and was left alone."""
    MISSING = "missing"
    """It is not there; found by a comparison."""
    FAILED = "failed"


@dataclass(slots=True)
class CopyReport:
    """What became of the sessions of a storage."""

    outcomes: Counter[CopyOutcome] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    """Why a session is not the same in both storages, by its id."""

    def add(self, session_id: str, outcome: CopyOutcome, reason: str | None) -> None:
        self.outcomes[outcome] += 1
        if reason is not None:
            self.problems[session_id] = reason


Step = Callable[[Entry], Coroutine[Any, Any, tuple[CopyOutcome, str | None]]]


async def copy_sessions(
    source: SessionStorage,
    target: SessionStorage,
    *,
    overwrite: bool = False,
    advance: Advance | None = None,
) -> CopyReport:
    """Copy every session, byte for byte; what is equal is skipped, so it can be called again.

    Args:
        source: Whose sessions are copied; nothing is changed there.
        target: Where they are written.
        overwrite: Whether sessions that differ are replaced; else they are a problem. Those whose
            turn is running there are never replaced.
        advance: Is called with the number of sessions that are done, and of all.

    Raises:
        StorageError: the source cannot be listed.
    """
    return await _each(source, partial(_copy, source, target, overwrite=overwrite), advance)


async def compare_sessions(
    source: SessionStorage, target: SessionStorage, *, advance: Advance | None = None
) -> CopyReport:
    """Read every session of the source in both storages, and tell which are not equal.

    Raises:
        StorageError: the source cannot be listed.
    """
    return await _each(source, partial(_compare, source, target), advance)


async def _each(source: SessionStorage, step: Step, advance: Advance | None) -> CopyReport:
    report, entries = CopyReport(), sorted(await source.entries())
    for start in range(0, len(entries), BATCH):
        some = entries[start : start + BATCH]
        steps = [partial(_outcome_of, step, entry) for entry in some]
        outcomes = await run_concurrently(steps, most=AT_ONCE)
        for entry, outcome in zip(some, outcomes, strict=True):
            if outcome is not None:
                report.add(entry.session_id, *outcome)
        if advance is not None:
            advance(start + len(some), len(entries))
    return report


async def _outcome_of(step: Step, entry: Entry) -> tuple[CopyOutcome, str | None] | None:
    """Return what became of a session; None if it was deleted meanwhile."""
    if entry.problem is not None:
        return CopyOutcome.FAILED, entry.problem
    try:
        return await step(entry)
    except SessionNotFound:
        return None
    except MochiError as error:
        return CopyOutcome.FAILED, error.message


async def _copy(
    source: SessionStorage, target: SessionStorage, entry: Entry, *, overwrite: bool
) -> tuple[CopyOutcome, str | None]:
    session_id = entry.session_id
    content, _ = await source.read(session_id)
    try:
        await target.create(session_id, [content])
    except SessionExists:
        present, version = await target.read(session_id)
    else:
        return CopyOutcome.COPIED, None
    if present == content:
        return CopyOutcome.EQUAL, None
    if not overwrite:
        return CopyOutcome.DIFFERENT, "another session with this id is there"
    try:
        async with target.claim(session_id):
            await target.replace(session_id, version, [content])
    except SessionChanged:
        raise StorageUnavailable(
            session_id=session_id, reason="it is being changed there"
        ) from None
    return CopyOutcome.REPLACED, None


async def _compare(
    source: SessionStorage, target: SessionStorage, entry: Entry
) -> tuple[CopyOutcome, str | None]:
    content, _ = await source.read(entry.session_id)
    try:
        present, _ = await target.read(entry.session_id)
    except SessionNotFound:
        return CopyOutcome.MISSING, "it is not there"
    if present == content:
        return CopyOutcome.EQUAL, None
    return CopyOutcome.DIFFERENT, "it differs"
