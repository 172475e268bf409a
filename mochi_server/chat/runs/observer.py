"""What watches runs without being a client: metrics and traces.

An observer is told synchronously what a run does. A reader of the log would be woken for each
token, as a client is; an observer is not told of deltas, so it costs nothing per token.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ...errors import InternalError, MochiError
from ...protocol.completions import Finish
from ...protocol.events import Event
from ..journal.records import RunHead, RunState

CANCELLED: Final = "cancelled"


@dataclass(slots=True, kw_only=True, eq=False)
class ObservedRequest:
    """One request to a model, as far as it has come; times are of ``time.perf_counter``."""

    head: RunHead
    """The run that it is part of."""
    session_id: str
    """The conversation: that of the run, or of one of its agents."""
    provider: str
    """Alias of the provider."""
    model: str
    """The provider's own name."""
    began_at: float = field(default_factory=time.perf_counter)
    first_chunk_at: float | None = None
    ended_at: float | None = None
    chunks: int = 0
    """Pieces of the reply that have come, about one for each token."""
    finish: Finish | None = None
    error_type: str | None = None
    """Why there is no whole reply: the code of the error, or ``cancelled``."""

    def count(self, chunks: int) -> None:
        """Note that so many pieces have come."""
        if self.first_chunk_at is None:
            self.first_chunk_at = time.perf_counter()
        self.chunks += chunks

    def fail(self, error: BaseException) -> None:
        """Note why there is no whole reply."""
        if isinstance(error, Exception):
            known = error if isinstance(error, MochiError) else InternalError()
            self.error_type = known.code
        else:
            self.error_type = CANCELLED


class RunObserver:
    """Is told what runs do.

    Its methods are called in the midst of a turn: they must be quick, and must not raise.
    """

    def on_accepted(self, head: RunHead) -> None:
        """A run begins, or goes on, or waits in the queue; called in the task of its request."""

    def on_events(self, head: RunHead, events: Sequence[Event]) -> None:
        """A run has said something; deltas are left out."""

    def on_asked(self, call: ObservedRequest) -> None:
        """A request to a model begins."""

    def on_answered(self, call: ObservedRequest) -> None:
        """A request to a model has ended, with a reply or without."""

    def on_ended(self, head: RunHead, state: RunState, error: MochiError | None) -> None:
        """A run has ended, also one of a process that has died, which this one has recovered.

        Or it waits for a person, and this process has let it go.
        """
