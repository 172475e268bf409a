"""How far runs have come, as clients are told."""

from __future__ import annotations

from dataclasses import dataclass

from ..journal.records import RunState
from .progress import RunProgress
from .run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How far a run has come."""

    run_id: str
    session_id: str
    model: str
    state: RunState
    started_at: str
    """UTC, microseconds, ``Z``."""
    position: int
    """Number of its last event."""
    tokens: int
    """Pieces of text and thinking so far, about one for each token."""
    code: str | None = None
    """Code of the error that ended it."""
    message_id: str | None = None
    """Id of the message of the model that it stored last, once it has ended."""
    owner: str | None = None
    """To whom its session belongs."""


def status_of(run: Run, state: RunState = "running", code: str | None = None) -> RunStatus:
    return RunStatus(
        run_id=run.run_id,
        session_id=run.head.session_id,
        model=run.head.model,
        state=_present_state(run) if state == "running" else state,
        started_at=run.head.started_at,
        position=run.log.end - 1,
        tokens=run.log.deltas,
        code=code,
        message_id=None if state == "running" else run.message_id,
        owner=run.head.owner,
    )


def _present_state(run: Run) -> RunState:
    if run.head.is_queued:
        return "queued"
    return "waiting" if run.is_waiting else "running"


def status_of_progress(progress: RunProgress) -> RunStatus:
    """Return the status of a run that another process executes, or that has ended."""
    end, head = progress.end or {}, progress.head
    return RunStatus(
        run_id=head.run_id,
        session_id=head.session_id,
        model=head.model,
        state=progress.state,
        started_at=head.started_at,
        position=progress.next_event - 1,
        tokens=progress.deltas,
        code=end.get("code"),  # type: ignore[arg-type] # of our own making
        message_id=end.get("message_id"),  # type: ignore[arg-type]
        owner=head.owner,
    )
