"""The journal in memory, of one process that stores nothing on disk."""

from __future__ import annotations

import time
from collections.abc import Container
from dataclasses import dataclass, field

from .base import JournalledRun, JournalPart, RunJournal, RunWriter, Sink
from .records import Note, RunHead, decode


@dataclass(slots=True, eq=False)
class _Lines(Sink):
    head: RunHead
    lines: list[bytes] = field(default_factory=list)
    is_held: bool = True
    changed: float = 0.0

    async def append(self, data: bytes) -> int:
        self.lines += [line.partition(b" ")[2] for line in data.splitlines()]
        self.changed = time.monotonic()
        return len(data)

    def close(self) -> None:
        self.is_held = False

    @property
    def is_parked(self) -> bool:
        """Whether it was let go until somebody decides."""
        last = decode(self.lines[-1]) if self.lines else None
        return isinstance(last, Note) and last.name == "waiting"

    @property
    def end(self) -> str | None:
        """How the run ended."""
        last = decode(self.lines[-1]) if self.lines else None
        return str(last.data["state"]) if isinstance(last, Note) and last.name == "end" else None


class MemoryRunJournal(RunJournal):
    """The runs of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, _Lines] = {}

    def _open(self, head: RunHead) -> Sink:
        run = self._runs.setdefault(head.run_id, _Lines(head))
        run.head = head
        return run

    async def take(self, run_id: str) -> RunWriter | None:
        run = self._runs.get(run_id)
        if run is None or run.is_held or run.end is not None:
            return None
        run.is_held = True
        writer = self._writers[run_id] = RunWriter(run_id, run)
        return writer

    async def read(self, run_id: str, position: object = None) -> JournalPart | None:
        run = self._runs.get(run_id)
        if run is None or not run.lines:
            return None
        begin = position if isinstance(position, int) else 0
        lines = [line for line in map(decode, run.lines[begin:]) if line is not None]
        return JournalPart(lines, len(run.lines), run.is_held and run.end is None)

    async def runs(self, session_ids: Container[str] | None = None) -> list[JournalledRun]:
        return [
            JournalledRun(
                run_id,
                run.head.session_id,
                run.head.started_at,
                run.end,
                is_held=run.is_held and run.end is None,
                is_parked=run.is_parked,
                is_queued=run.head.is_queued,
                owner=run.head.owner,
            )
            for run_id, run in self._runs.items()
            if run.lines and (session_ids is None or run.head.session_id in session_ids)
        ]

    async def prune(self, seconds: float) -> None:
        before = time.monotonic() - seconds
        for run_id, run in list(self._runs.items()):
            if run.changed < before and run.end is not None:
                del self._runs[run_id]
