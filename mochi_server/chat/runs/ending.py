"""How runs end that no process executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...errors import MochiError
from ..journal.records import RunState
from .observer import RunObserver


class RunEnding(NamedTuple):
    """How a run ends that no process executes."""

    state: RunState
    error: MochiError | None = None


STOPPED = RunEnding("stopped")


class EndsRuns(Protocol):
    """Ends such runs, and keeps what they had said; see ``RunRecovery``."""

    observers: Sequence[RunObserver]

    async def recover(
        self, run_id: str, ending: RunEnding | None = None, *, claimed: str | None = None
    ) -> bool: ...
