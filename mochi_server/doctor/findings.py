"""A check, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import JSONObject
from ..runtime import Runtime

Level = Literal["ok", "note", "warning", "error"]

MAX_SHOWN = 10
"""Findings of one kind that are shown one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page."""

    level: Level
    """``note``: worth knowing; ``warning``: something does not work; ``error``: the server, or
    something that it cannot do without, does not."""
    what: str
    suggestion: str | None = None
    topic: str = ""

    def as_json(self) -> JSONObject:
        return {
            "topic": self.topic,
            "level": self.level,
            "what": self.what,
            "suggestion": self.suggestion,
        }


def ok(what: str) -> Finding:
    return Finding("ok", what)


def note(what: str, suggestion: str | None = None) -> Finding:
    return Finding("note", what, suggestion)


def warning(what: str, suggestion: str) -> Finding:
    return Finding("warning", what, suggestion)


def error(what: str, suggestion: str) -> Finding:
    return Finding("error", what, suggestion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check; those of one topic stand together on the page."""

    topic: str
    run: Callable[[Runtime], Awaitable[Sequence[Finding]]]
    """Raises nothing that can be foreseen: what is wrong is a finding."""
    seconds: float = 10.0
    """Longest time for the check; that it takes longer is a finding as well."""


def shortened(findings: Sequence[Finding], more: Callable[[int], Finding]) -> list[Finding]:
    """Return the first findings, and one that says how many more there are."""
    left = len(findings) - MAX_SHOWN
    return [*findings[:MAX_SHOWN], more(left)] if left > 0 else list(findings)
