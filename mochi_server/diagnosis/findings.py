"""A check of the doctor, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import JSONObject
from ..runtime import Runtime

Level = Literal["ok", "note", "warning", "error"]

MOST_SHOWN = 10
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
    """The topic of the check that made it."""

    def as_json(self) -> JSONObject:
        """Return ``{"topic", "level", "what", "suggestion"}``."""
        return {
            "topic": self.topic,
            "level": self.level,
            "what": self.what,
            "suggestion": self.suggestion,
        }

    def of(self, topic: str) -> Finding:
        return replace(self, topic=topic)


def ok(what: str) -> Finding:
    """Say that something is as it should be."""
    return Finding("ok", what)


def note(what: str, suggestion: str | None = None) -> Finding:
    """Say something that is worth knowing."""
    return Finding("note", what, suggestion)


def warning(what: str, suggestion: str) -> Finding:
    """Say that something does not work, and the rest does."""
    return Finding("warning", what, suggestion)


def error(what: str, suggestion: str) -> Finding:
    """Say that the server cannot do its work."""
    return Finding("error", what, suggestion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one thing; it changes nothing."""

    topic: str
    """The heading on the page; checks of one topic stand together."""
    run: Callable[[Runtime], Awaitable[Sequence[Finding]]]
    """Raises nothing that can be foreseen: what is wrong is a finding."""
    seconds: float = 6.0
    """Longest time for the check; that it takes longer is a finding as well."""


def shortened(findings: Sequence[Finding], more: Callable[[int], Finding]) -> list[Finding]:
    """Return the first findings, and one that says how many more there are."""
    left = len(findings) - MOST_SHOWN
    if left <= 0:
        return list(findings)
    return [*findings[:MOST_SHOWN], more(left)]
