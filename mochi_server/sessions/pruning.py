"""Delete sessions that are no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..core.progress import Advance
from ..errors import JSONObject, MochiError, SessionNotFound
from .manager import SessionManager
from .session import ChatSession
from .types import IMPORTED_FROM
from .versions import is_before


@dataclass(frozen=True, slots=True)
class PruneRule:
    """Which sessions are deleted: those that meet all conditions. Pinned sessions never are.

    Raises:
        ValueError: nothing is named, which would take everything.
    """

    before: datetime | None = None
    """Changed last, and imported from another program, before this moment. A session whose time
    cannot be parsed stays."""
    empty: bool = False
    """It has no message but a system prompt."""
    archived: bool = False

    def __post_init__(self) -> None:
        if not (self.before or self.empty or self.archived):
            raise ValueError("A rule must name something.")

    def may_match(self, line: JSONObject) -> bool:
        """Return False if a line of the list already shows that the session stays."""
        if self.empty and line["message_count"] not in {0, 1}:
            return False
        return self._selects(line["pinned"], line["archived"], line["updated_at"])

    def matches(self, session: ChatSession) -> bool:
        if self.empty and any(message.role != "system" for message in session.messages):
            return False
        metadata = session.metadata
        origin = metadata.optional(IMPORTED_FROM)
        # The other times of an imported session are those of the program that it comes from.
        imported_at = origin.get("at") if isinstance(origin, dict) else None
        times = (metadata.updated_at, imported_at or metadata.updated_at)
        return all(self._selects(metadata.pinned, metadata.archived, time) for time in times)

    def _selects(self, pinned: object, archived: object, updated_at: object) -> bool:
        if pinned or (self.archived and not archived):
            return False
        return self.before is None or is_before(updated_at, self.before)


@dataclass(slots=True)
class Pruned:
    """What became of the sessions that a rule selected."""

    deleted: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """Why a session stayed, by its id: a turn runs, it changed meanwhile, it cannot be removed."""


async def find_prunable(
    sessions: SessionManager, rule: PruneRule, advance: Advance | None = None
) -> list[JSONObject]:
    """Return the lines of the list (``SessionPage.entries``) that the rule selects."""
    lines = [line for line in (await sessions.list()).entries if rule.may_match(line)]
    found = []
    for done, line in enumerate(lines, start=1):
        if await _matches(sessions, line, rule):
            found.append(line)
        if advance is not None:
            advance(done, len(lines))
    return found


async def _matches(sessions: SessionManager, line: JSONObject, rule: PruneRule) -> bool:
    """Read the session: a line has not all, and what it counts of other programs may be wrong."""
    try:
        return rule.matches(await sessions.get(str(line["session_id"])))
    except MochiError:  # gone or broken meanwhile: no candidate
        return False


async def prune(
    sessions: SessionManager,
    rule: PruneRule,
    session_ids: Sequence[str],
    advance: Advance | None = None,
) -> Pruned:
    """Delete these sessions, each only if the rule still selects it and no turn is running."""
    done = Pruned()
    for number, session_id in enumerate(session_ids, start=1):
        try:
            if await sessions.delete(session_id, only_if=rule.matches):
                done.deleted.append(session_id)
            else:
                done.kept[session_id] = "It has changed meanwhile."
        except SessionNotFound:
            done.kept[session_id] = "Somebody else has removed it."
        except MochiError as error:
            done.kept[session_id] = error.message
        if advance is not None:
            advance(number, len(session_ids))
    return done
