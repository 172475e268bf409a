"""Deletes files that no message has any more."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from ...core.aio import BackgroundTasks, in_thread
from ...errors import MochiError, SessionBusy, SessionNotFound, SessionUnreadable
from ..manager import SessionManager
from ..storage.base import SESSION_ID
from .store import AttachmentStore

logger = logging.getLogger(__name__)

KEEP_SECONDS = 86_400.0
"""How long a file is kept after it was uploaded, or put there again, whoever uses it, and after its
session was missed: a server may have the wrong storage, or one that is not restored yet."""
SWEEP_SECONDS = 3_600.0
"""Pause between two looks."""

_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(slots=True, kw_only=True)
class AttachmentSweeper:
    """Deletes what uploads without a message, edits, deletions and killed processes have left.

    A file stays while anything in its session's file names it (messages, kept variants), or the
    chat of an agent does, and while a run of the session goes on or waits. Several processes may
    sweep at the same time.
    """

    store: AttachmentStore
    sessions: SessionManager
    agent_sessions: SessionManager
    running: Callable[[], Awaitable[Collection[str]]]
    """Returns the sessions of all runs that go on, also those that are not kept."""
    _clean: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Versions of sessions and of their folders in which every file was in use."""

    def tend(self, tasks: BackgroundTasks) -> None:
        """Begin to sweep, as a server does."""
        tasks.spawn(self._tend(), name="unused attachments")

    async def _tend(self) -> None:
        while True:
            try:
                if count := await self.sweep():
                    logger.info("Deleted %d attachments that no message has", count)
            except (OSError, MochiError) as error:
                logger.warning("Unused attachments cannot be deleted: %s", error)
            await anyio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Delete the unused files of all sessions, and return how many there were."""
        unused: dict[str, set[str]] = {}
        folders = await in_thread(self.store.folders)
        for session_id, changed in folders.items():
            if not SESSION_ID.fullmatch(session_id):
                continue
            if names := await self._unused(session_id, changed):
                unused[session_id] = names
        self._clean = {key: value for key, value in self._clean.items() if key in folders}
        if not unused:
            return 0
        of_agents = await self._named_by_agents()
        count = 0
        for session_id, names in unused.items():
            if left := names - of_agents:
                count += await self._delete(session_id, left)
        return count

    async def _unused(self, session_id: str, changed: int) -> set[str]:
        """Return the old files of a session that its messages do not name."""
        version: tuple[int, ...] | None = None
        with suppress(SessionNotFound):
            version = await self.sessions.storage.version(session_id)
        if self._clean.get(session_id) == (version, changed):
            return set()
        if version is not None:
            await in_thread(self.store.note_found, session_id)
        times = await in_thread(self.store.times, session_id)
        unused = times.keys() - await self._named(self.sessions, session_id)
        if not unused:
            self._clean[session_id] = (version, changed)
        latest = time.time() - KEEP_SECONDS
        old = {name for name in unused if times[name] < latest}
        if old and version is None:
            missing_since = await in_thread(self.store.missing_since, session_id)
            return old if missing_since < latest else set()
        return old

    async def _delete(self, session_id: str, names: set[str]) -> int:
        try:
            async with self.sessions.edit(session_id, exclusive=True):
                named = await self._named(self.sessions, session_id)
                return await self._delete_old(session_id, names - named)
        except (SessionBusy, SessionUnreadable):
            return 0
        except SessionNotFound:
            pass
        async with self.sessions.storage.lock(session_id) as lock:
            if lock.version is not None or session_id in await self.running():
                return 0
            return await self._delete_old(session_id, names)

    async def _delete_old(self, session_id: str, names: Collection[str]) -> int:
        before = time.time() - KEEP_SECONDS
        return await in_thread(self.store.delete_old, session_id, names, before)

    async def _named_by_agents(self) -> set[str]:
        named: set[str] = set()
        for entry in await self.agent_sessions.storage.entries():
            named |= await self._named(self.agent_sessions, entry.session_id)
        return named

    async def _named(self, sessions: SessionManager, session_id: str) -> set[str]:
        """Return all that looks like the id of a file in a session's file."""
        try:
            content, _ = await sessions.storage.read(session_id)
        except SessionNotFound:
            return set()
        return await in_thread(lambda: {each.decode() for each in _ID.findall(content)})
