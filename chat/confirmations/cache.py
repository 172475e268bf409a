"""A cache on a folder that never loses an entry before its time."""

from __future__ import annotations

import os
import pickle
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache

SWEEP_SECONDS = 60.0
"""Pause between two searches for entries whose time is over."""

STALE_SECONDS = 600.0
"""Age from which a temporary file is what a crash has left."""


def _machine() -> str:
    """Return a name of this machine until it starts again, when its clock begins anew."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return platform.node()


MACHINE = _machine()


class MemoryCache(LocMemCache):
    """Django's cache of one process, by a monotonic clock."""

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:  # noqa: ANN401 - Django
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if seconds is None else time.monotonic() + float(seconds)

    def _has_expired(self, key: str) -> bool:
        expires = self._expire_info.get(key, -1.0)  # type: ignore[attr-defined] # Django's own
        return expires is not None and expires <= time.monotonic()


class FolderCache(FileBasedCache):
    """Django's cache of files, shared by the processes of one machine.

    Django's own throws entries away at random when there are many, lists the whole folder at each
    write to count them, and keeps expired entries that nobody reads again. Here nothing goes before
    its time, and what has expired goes by itself. ``delete`` returns True to exactly one of those
    who try: the system removes a file once. Methods with an underscore are private ones of Django
    (tests/stories/test_private_names.py).
    """

    _swept: ClassVar[dict[str, float]] = {}
    """When each folder was swept last: Django builds a cache for each thread."""

    def __init__(self, dir: str, params: dict[str, Any]) -> None:  # noqa: A002 - Django's name
        """Make no folder: a process that only reads leaves none behind."""
        BaseCache.__init__(self, params)
        self._dir = os.path.abspath(dir)  # noqa: PTH100 - of text, as Django has it

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:  # noqa: ANN401 - as Django has it
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if seconds is None else (MACHINE, time.monotonic() + float(seconds))

    def _is_expired(self, file: Any) -> bool:  # noqa: ANN401 - an open file
        try:
            expires = pickle.load(file)  # noqa: S301 - what we have written ourselves
        except EOFError:  # a power cut left an empty file
            expires = ()
        if expires is None:
            return False
        if (
            isinstance(expires, tuple)
            and expires[:1] == (MACHINE,)
            and expires[1] > time.monotonic()
        ):
            return False
        file.close()
        self._delete(file.name)  # type: ignore[attr-defined] # Django's own
        return True

    def _cull(self) -> None:
        """Sweep now and then; Django calls this before each write."""
        now = time.monotonic()
        if now - self._swept.get(self._dir, float("-inf")) > SWEEP_SECONDS:
            self._swept[self._dir] = now
            self.sweep()

    def sweep(self) -> None:
        for entry in os.scandir(self._dir):
            with suppress(OSError):
                if entry.name.endswith(self.cache_suffix):
                    self._remove_expired(entry.path)
                elif time.time() - entry.stat().st_mtime > STALE_SECONDS:
                    Path(entry.path).unlink()

    def _remove_expired(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123 - Django wants a file with a name of text
            try:
                self._is_expired(file)
            except Exception:  # noqa: BLE001 - unpickling what a power cut left raises anything
                Path(path).unlink()
