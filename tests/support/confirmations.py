"""Confirmations as tests make them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from mochi_server.chat.confirmations.asking import Confirmations
from mochi_server.chat.confirmations.confirmation import (
    Confirmation,
    ConfirmationDecision,
)
from mochi_server.chat.confirmations.former import FormerConfirmations
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.chat.rules.places import MemoryRuleStore, RulePlaces
from mochi_server.core import clock
from mochi_server.core.clock import timestamp
from mochi_server.core.ids import new_confirmation_id
from mochi_server.sessions import SessionManager
from mochi_server.sessions.storage.memory import MemoryStorage
from mochi_server.state import SQLiteState

START = datetime(2026, 1, 15, 10, 30, tzinfo=timezone.utc)
YES = ConfirmationDecision(approved=True, decided_by="loopback")
NO = ConfirmationDecision(approved=False, reason="not today", decided_by="loopback")


class Clock(clock.Clock):
    """A clock that tests move."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now
        self.passed = timedelta()

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.passed.total_seconds()

    def advance(self, **fields: float) -> None:
        self.passed += timedelta(**fields)
        self.jump(**fields)

    def jump(self, **fields: float) -> None:
        """Change the time of day alone."""
        self.now += timedelta(**fields)


def make_confirmation(
    session_id: str = "one", *, minutes: float = 0, **fields: Any
) -> Confirmation:
    """Return a confirmation that was asked so many minutes after the start."""
    values = {
        "confirmation_id": new_confirmation_id(),
        "run_id": "run_1",
        "session_id": session_id,
        "tool_name": "add",
        "tool_source": "directory",
        "arguments": {"a": 1, "text": "é\u2028"},
        "call_index": 0,
        "tool_call_id": "call_1",
        "queue_position": 1,
        "queue_total": 1,
        "asked_at": timestamp(START + timedelta(minutes=minutes)),
        "expires_at": None,
        **fields,
    }
    return Confirmation(**values)


class NoRules(RulePlaces):
    """Rules of a session that is nowhere stored: none."""

    async def load(self, session_id: str | None = None) -> list[Any]:
        return []


def asking_in_memory(session_id: str = "a1b2c3d4e5") -> Confirmations:
    """Confirmations of one conversation, without any rules."""
    places = NoRules(MemoryRuleStore(), SessionManager(MemoryStorage()))
    store = StateConfirmationStore()
    return Confirmations(store=store, rule_places=places, run_id="run_1", session_id=session_id)


def store_in(folder: Path) -> StateConfirmationStore:
    """A store in the state of a folder, as a process of a server has it."""
    former = FormerConfirmations(folder / "confirmations")
    return StateConfirmationStore(SQLiteState(folder, conversion=former))


@contextmanager
def open_state(data: Path) -> Iterator[sqlite3.Connection]:
    """Open the state of a data folder, beside the servers."""
    path = data / ".mochi" / "state.sqlite3"
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        yield connection


def stored_confirmations(state: sqlite3.Connection) -> list[tuple[str, bytes]]:
    """Return id and content of each confirmation that is not consumed."""
    rows = state.execute("SELECT id, value FROM state_rows WHERE kind = 'confirmations'")
    return rows.fetchall()
