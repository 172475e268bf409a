"""Summarises many sessions one after the other, for the operator's command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ...core.aio import in_thread
from ...core.progress import Advance
from ...errors import MochiError, SessionNotFound
from ...sessions import ChatSession, SessionManager
from ...sessions.types import is_before
from ..summarization import SummarizationService, SummaryOutcome, has_news
from .text import is_finished


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFilter:
    """Which sessions to summarise; by default those that need it."""

    session_ids: Sequence[str] | None = None
    """Only these."""
    before: datetime | None = None
    """Only those changed last before this moment; not those whose time nobody can read."""
    anew: bool = False
    """Whether to include sessions whose summary is up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCandidate:
    """A session to summarise."""

    session_id: str
    model: str | None
    """Full name of the model that would write; null when no model of the session can."""
    reason: str | None = None
    """Why the session cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """The outcome of one session."""

    session_id: str
    outcome: SummaryOutcome | None
    """Null after a failure."""
    reason: str | None = None


async def find_candidates(
    sessions: SessionManager,
    summaries: SummarizationService,
    chosen: SummaryFilter,
    advance: Advance | None = None,
) -> list[SummaryCandidate]:
    """Return the chosen sessions that have something to summarise, the one changed last first.

    Raises:
        StorageError: the folder cannot be listed.
    """
    candidates = []
    ids = await _ids(sessions, chosen)
    for number, session_id in enumerate(ids, start=1):
        candidate = await _candidate_of(sessions, summaries, session_id, chosen)
        if candidate is not None:
            candidates.append(candidate)
        if advance is not None:
            advance(number, len(ids))
    return candidates


async def _ids(sessions: SessionManager, chosen: SummaryFilter) -> list[str]:
    if chosen.session_ids is not None:
        return [*dict.fromkeys(chosen.session_ids)]
    lines = (await sessions.list()).entries
    return [
        str(line["session_id"])
        for line in lines
        if chosen.before is None or is_before(line["updated_at"], chosen.before)
    ]


async def _candidate_of(
    sessions: SessionManager,
    summaries: SummarizationService,
    session_id: str,
    chosen: SummaryFilter,
) -> SummaryCandidate | None:
    try:
        session = await sessions.get(session_id)
        if not is_finished(session):
            return None
        if not (chosen.anew or await in_thread(needs_one, session)):
            return None
        model = await summaries.models.choose(session.metadata)
    except SessionNotFound as error:
        if chosen.session_ids is None:  # gone meanwhile
            return None
        return SummaryCandidate(session_id=session_id, model=None, reason=error.message)
    except MochiError as error:
        return SummaryCandidate(session_id=session_id, model=None, reason=error.message)
    return SummaryCandidate(session_id=session_id, model=model)


def needs_one(session: ChatSession) -> bool:
    """Return whether there is no summary, or one of this server that is behind.

    It is not known how far a summary of another program went: it is kept until the session goes on.
    """
    summary = session.metadata.summary
    if summary is not None and "covers" not in (summary.model_extra or {}):
        return False
    return has_news(session)


async def summarise_all(
    summaries: SummarizationService,
    candidates: Sequence[SummaryCandidate],
    *,
    anew: bool = False,
    advance: Advance | None = None,
) -> list[SummaryResult]:
    """Summarise sessions one by one; chats go first, and a failure stops no other session."""
    results = []
    for number, candidate in enumerate(candidates, start=1):
        results.append(await _summarise(summaries, candidate, anew=anew))
        if advance is not None:
            advance(number, len(candidates))
    return results


async def _summarise(
    summaries: SummarizationService, candidate: SummaryCandidate, *, anew: bool
) -> SummaryResult:
    session_id, reason = candidate.session_id, candidate.reason
    outcome = None
    if reason is None:
        try:
            outcome = await summaries.bring_up_to_date(session_id, anew=anew)
        except MochiError as error:
            reason = error.message
    return SummaryResult(session_id=session_id, outcome=outcome, reason=reason)
