"""A cache on a folder that never loses an entry before its time."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.filebased import FileBasedCache

SWEEP_SECONDS = 60.0
"""Pause between two looks for entries whose time is over."""

STALE_SECONDS = 600.0
"""Age from which a temporary file is the rest of a crash."""


class FolderCache(FileBasedCache):
    """Django's cache of files, shared by the processes of one machine.

    Django's own throws away entries at random when there are many, and looks at the whole folder at
    each write to know how many; and entries that nobody asks for again stay for ever. Here nothing
    goes before its time, and what is over goes by itself. ``delete`` is true for exactly one of
    those who try: the system removes a file once.
    """

    _swept: ClassVar[dict[str, float]] = {}
    """When a folder was swept last: Django makes a cache for each thread."""

    def __init__(self, dir: str, params: dict[str, Any]) -> None:  # noqa: A002 - Django's name
        """Make nothing yet: who only looks leaves no folder behind."""
        BaseCache.__init__(self, params)
        self._dir = os.path.abspath(dir)  # noqa: PTH100 - of text, as Django has it

    def _cull(self) -> None:
        """Called by Django before each write."""
        now = time.monotonic()
        if now - self._swept.get(self._dir, float("-inf")) > SWEEP_SECONDS:
            self._swept[self._dir] = now
            self.sweep()

    def sweep(self) -> None:
        """Remove the entries whose time is over."""
        for entry in os.scandir(self._dir):
            with suppress(OSError):
                if entry.name.endswith(self.cache_suffix):
                    self._remove_expired(entry.path)
                elif time.time() - entry.stat().st_mtime > STALE_SECONDS:
                    Path(entry.path).unlink()

    def _remove_expired(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123 - Django wants a file with a name of text
            try:
                self._is_expired(file)  # type: ignore[attr-defined] # Django's own
            except Exception:  # noqa: BLE001 - unpickling what a power cut left raises anything
                Path(path).unlink()
