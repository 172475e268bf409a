"""What became of an import."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from ...errors import CannotImport, JSONObject
from .fields import LeftOut

Outcome = Literal["created", "continued", "unchanged"]
"""``continued``: new messages were added; ``unchanged``: it was imported before."""

MAX_PROBLEMS: Final = 100
"""Problems of one file that are named; more are counted."""
MAX_KINDS: Final = 100
"""Kinds of what was left out that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """A session that a conversation has become, or was before."""

    session_id: str
    message_count: int
    outcome: Outcome
    forked_from: str | None = None
    """The session of the branch that the other program shows."""
    version: str | None = None
    """Of a session file of mochi-server: that of its format."""
    policies_changed: bool = False
    """Whether the file had policies that do not ask about every tool call; the session has not."""

    def as_json(self) -> JSONObject:
        return {
            "session_id": self.session_id,
            "outcome": self.outcome,
            "message_count": self.message_count,
            "forked_from": self.forked_from,
            "format_version": self.version,
            "policies_changed": self.policies_changed,
        }


@dataclass(slots=True)
class ImportReport:
    """What became of one file."""

    program: str | None = None
    """Whose format it has, such as ``chatgpt``; of sessions ``mochi``. None: nothing was read."""
    sessions: list[ImportedSession] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=Counter)
    """What was not taken, by kind."""
    problems: list[CannotImport] = field(default_factory=list)
    """Why conversations, or the rest of the file, were not imported."""

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome == outcome for each in self.sessions)

    def add_left_out(self, left_out: LeftOut) -> None:
        for kind, count in left_out.items():
            known = kind in self.left_out or len(self.left_out) < MAX_KINDS
            self.left_out[kind if known else "something else"] += count

    def add_problem(self, problem: CannotImport) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.left_out["problem beyond the first hundred"] += 1

    def as_json(self) -> JSONObject:
        return {
            "program": self.program,
            "imported": [each.as_json() for each in self.sessions],
            "left_out": dict(self.left_out),
            "problems": [dict(each.details) for each in self.problems],
        }
