"""Migrate files of old versions to the present format, before their next change would."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import orjson

from ..core.aio import in_thread
from ..core.progress import Advance
from ..errors import MochiError, SessionBusy, SessionNotFound
from .codec import NotASession, assemble, disassemble
from .session import ChatSession
from .storage.base import Entry
from .storage.json_files import JSONFileStorage
from .versions import OLD_VERSIONS, version_of


class MigrationOutcome(str, Enum):
    """The result of a migration."""

    OLD = "old"
    MIGRATED = "migrated"
    BUSY = "busy"
    """A turn is running in it: try again later."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FileMigration:
    """A file of an old version, or one that cannot be read."""

    session_id: str
    version: str | None
    outcome: MigrationOutcome
    backup: str | None = None
    """The name of the old file in the same folder."""
    reason: str | None = None


async def migrate_files(
    storage: JSONFileStorage, *, write: bool = False, advance: Advance | None = None
) -> list[FileMigration]:
    """Migrate or only find the files of old versions; return these and unreadable ones.

    A file that is migrated gets the metadata of today and one line for each message; its times
    stay, so that it keeps its place in the list. The old one stays beside it as
    ``{session_id}.json.{version}.bak``. Files of newer versions are left alone. Without ``write``
    nothing is changed. ``advance`` takes how many files are done, and of how many.

    Raises:
        StorageError: the folder cannot be listed.
    """
    entries = sorted(await storage.entries())
    migrations = []
    for number, entry in enumerate(entries, start=1):
        with suppress(SessionNotFound):  # it went away meanwhile
            if (migration := await _migrate(storage, entry, write=write)) is not None:
                migrations.append(migration)
        if advance is not None:
            advance(number, len(entries))
    return migrations


async def _migrate(storage: JSONFileStorage, entry: Entry, *, write: bool) -> FileMigration | None:
    version: str | None = None
    try:
        _, version = await _read(storage, entry)
        if version not in OLD_VERSIONS:
            return None
        if not write:
            return FileMigration(entry.session_id, version, MigrationOutcome.OLD)
        return await _rewrite(storage, entry.session_id)
    except SessionNotFound:
        raise
    except SessionBusy:
        return FileMigration(entry.session_id, version, MigrationOutcome.BUSY)
    except (MochiError, NotASession, OSError) as error:
        reason = error.message if isinstance(error, MochiError) else str(error)
        return FileMigration(entry.session_id, version, MigrationOutcome.FAILED, reason=reason)


async def _read(storage: JSONFileStorage, entry: Entry) -> tuple[ChatSession, str]:
    if entry.problem is not None:
        raise NotASession(entry.problem)
    content, _ = await storage.read(entry.session_id)
    document = await in_thread(disassemble, content)
    version = version_of(orjson.loads(document.head))
    return ChatSession.from_document(document, entry.session_id), version


async def _rewrite(storage: JSONFileStorage, session_id: str) -> FileMigration | None:
    """Migrate the file under its claim and lock, if it is still of an old version."""
    async with storage.claim(session_id), storage.lock(session_id) as hold:
        entry = Entry(session_id, hold.version or ())
        session, version = await _read(storage, entry)
        if version not in OLD_VERSIONS:
            return None
        path = storage.folder / f"{session_id}.json"
        backup = await in_thread(_keep, path, version)
        try:
            await hold.write(assemble(session.document()))
        finally:
            if backup.samefile(path):  # nothing was written
                backup.unlink()
    return FileMigration(session_id, version, MigrationOutcome.MIGRATED, backup=backup.name)


def _keep(path: Path, version: str) -> Path:
    """Give the file a second name: the file is replaced, so mode and time of the old one stay."""
    for number in itertools.count(1):
        times = "" if number == 1 else f".{number}"
        backup = path.with_name(f"{path.name}.{version}{times}.bak")
        with suppress(FileExistsError):
            backup.hardlink_to(path)
            return backup
    raise AssertionError  # count() does not end
