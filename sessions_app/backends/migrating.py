"""Bringing the tables of the sessions up to date."""

from __future__ import annotations

import logging
import time
from typing import Final

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.executor import MigrationExecutor

logger = logging.getLogger(__name__)

APP: Final = "sessions_app"

_SECONDS: Final = 5.0
"""Longest time for which another process may be making the same tables."""


def unapplied_migrations(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of the migrations that the database lacks; blocks.

    Raises:
        DatabaseError: it cannot be used.
    """
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes(APP))
    return [str(migration) for migration, _ in plan]


def apply_migrations(connection: BaseDatabaseWrapper) -> None:
    """Make and change the tables if that is needed; blocks.

    Processes that start at the same time meet here: all but one fail, as the tables are there, and
    find nothing left to do.

    Raises:
        DatabaseError: it cannot be used, or the tables cannot be made.
    """
    end = time.monotonic() + _SECONDS
    while unapplied := unapplied_migrations(connection):
        executor = MigrationExecutor(connection)
        try:
            executor.migrate(executor.loader.graph.leaf_nodes(APP))
        except (DatabaseError, MigrationSchemaMissing):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            logger.info("Tables of the database are up to date: %s", ", ".join(unapplied))
