"""Databases of tests, beside the ``DATABASES`` of the settings, which have none."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from pytest_django import DjangoDbBlocker

from mochi_project.databases import databases


@contextmanager
def database_alias(url: str, blocker: DjangoDbBlocker) -> Iterator[str]:
    """Let Django use a database, under an alias of its own."""
    alias = f"test-{secrets.token_hex(4)}"
    configured = connections.configure_settings({"default": {}, alias: databases(url)["default"]})
    connections.settings[alias] = configured[alias]
    try:
        with blocker.unblock():
            yield alias
    finally:
        del connections.settings[alias]
