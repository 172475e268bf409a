"""Summaries of many sessions, one after the other: what the operator's command does."""

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
    """Which sessions are to be summarised; without anything, those that need it."""

    session_ids: Sequence[str] | None = None
    """Only these."""
    before: datetime | None = None
    """Only those changed last before this moment; not those whose time nobody can read."""
    anew: bool = False
    """Also those whose summary is up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCandidate:
    """A session that is to be summarised."""

    session_id: str
    model: str | None
    """The one that would write; null when no model of the session can."""
    reason: str | None = None
    """Why it cannot be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """What became of one."""

    session_id: str
    outcome: SummaryOutcome | None
    """Null when it failed."""
    reason: str | None = None


async def find(
    sessions: SessionManager,
    summaries: SummarizationService,
    wanted: SummaryFilter,
    advance: Advance | None = None,
) -> list[SummaryCandidate]:
    """The sessions that are wanted and have something to summarise, the one changed last first.

    Raises:
        StorageError: the folder cannot be listed.
    """
    found = []
    ids = await _ids(sessions, wanted)
    for number, session_id in enumerate(ids, start=1):
        candidate = await _look(sessions, summaries, session_id, wanted)
        if candidate is not None:
            found.append(candidate)
        if advance is not None:
            advance(number, len(ids))
    return found


async def _ids(sessions: SessionManager, wanted: SummaryFilter) -> list[str]:
    if wanted.session_ids is not None:
        return [*dict.fromkeys(wanted.session_ids)]
    lines = (await sessions.list()).entries
    return [
        str(line["session_id"])
        for line in lines
        if wanted.before is None or is_before(line["updated_at"], wanted.before)
    ]


async def _look(
    sessions: SessionManager,
    summaries: SummarizationService,
    session_id: str,
    wanted: SummaryFilter,
) -> SummaryCandidate | None:
    try:
        session = await sessions.get(session_id)
        if not is_finished(session):
            return None
        if not (wanted.anew or await in_thread(needs_one, session)):
            return None
        model = await summaries.models.choose(session.metadata)
    except SessionNotFound as error:
        if wanted.session_ids is None:  # gone meanwhile
            return None
        return SummaryCandidate(session_id=session_id, model=None, reason=error.message)
    except MochiError as error:
        return SummaryCandidate(session_id=session_id, model=None, reason=error.message)
    return SummaryCandidate(session_id=session_id, model=model)


def needs_one(session: ChatSession) -> bool:
    """Whether there is no summary, or one of ours that is behind.

    Nobody knows how far another program's went: it is good enough until the session goes on.
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
    """Summarise them one by one, giving way to chats; a failure of one stops no other."""
    done = []
    for number, candidate in enumerate(candidates, start=1):
        done.append(await _summarise(summaries, candidate, anew=anew))
        if advance is not None:
            advance(number, len(candidates))
    return done


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
