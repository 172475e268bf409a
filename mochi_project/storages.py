"""The storages of sessions, and the state of processes, with those that need Django."""

from __future__ import annotations

from typing import Final

from mochi_server.backends import Backends, default_storages, import_class
from mochi_server.config import MochiServerSettings
from mochi_server.state import State

DATABASE_STORAGE = "sessions_app.backends.database.DatabaseStorage"
POSTGRESQL: Final = ("postgres:", "postgresql:", "pgsql:")
"""How the addresses begin of databases that can have the state."""


def storages_of(settings: MochiServerSettings) -> Backends:
    """Return the storages that settings choose, as ``default_storages`` does."""
    return default_storages(settings, database=DATABASE_STORAGE)


def state_of(settings: MochiServerSettings) -> State | None:
    """Return the state in the PostgreSQL of the settings; None: each machine has its own."""
    url = settings.database_url
    if url is None or settings.session_storage == "memory" or not url.startswith(POSTGRESQL):
        return None
    state = {"BACKEND": "sessions_app.backends.state.DatabaseState"}  # imports Django
    return import_class(state, State)()  # type: ignore[type-abstract]
