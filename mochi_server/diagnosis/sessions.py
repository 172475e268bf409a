"""The session files: which cannot be read, and which are of an older format."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from ..constants import FORMAT_VERSION
from ..core.aio import in_daemon_thread, yield_to_loop
from ..core.files import read_plain
from ..core.progress import counted
from ..errors import JSONObject, MochiError
from ..runtime import Runtime
from ..sessions import SessionManager
from ..sessions.catalogue.refresh import PREFIX_BYTES
from ..sessions.codec import NotASession, disassemble, open_prefix
from ..sessions.storage.base import Entry
from ..sessions.storage.file_operations import scan
from ..sessions.storage.json_files import JSONFileStorage
from ..sessions.types import OLD_VERSIONS, NotMetadata, read_metadata, version_of
from .findings import Finding, error, note, ok, shortened, warning

READ_SECONDS = 4.5
"""Longest time for the files of all folders; ten thousand take about a second."""

FILES_BETWEEN_YIELDS = 64
"""Files that are read before other threads may run."""

ADVICE = "Correct or move it away: it is left as it is, and hides no other session."


async def check_sessions(runtime: Runtime) -> list[Finding]:
    """Check the sessions of people, then those of agents."""
    end = time.monotonic() + READ_SECONDS
    findings = await _check(runtime.sessions, "of people", end)
    return [*findings, *await _check(runtime.agent_sessions, "of agents", end)]


async def _check(sessions: SessionManager, whose: str, end: float) -> list[Finding]:
    if isinstance(sessions.storage, JSONFileStorage):
        seconds = max(0.0, end - time.monotonic())
        files = await in_daemon_thread(read_session_files, sessions.storage.folder, seconds)
        return list(session_findings(files, whose))
    try:
        listing = await sessions.list()
    except MochiError as failed:
        return [error(f"The sessions cannot be listed: {failed.message}", "See the storage.")]
    problems = {str(entry["session_id"]): str(entry["reason"]) for entry in listing.problems}
    versions = Counter({FORMAT_VERSION: len(listing.entries)})
    return list(session_findings(SessionFiles(problems=problems, versions=versions), whose))


@dataclass(slots=True, kw_only=True)
class SessionFiles:
    """What a folder of sessions has."""

    versions: Counter[str] = field(default_factory=Counter)
    """How many readable sessions are of each format."""
    problems: dict[str, str] = field(default_factory=dict)
    """The reason, by the name of what cannot be read."""
    left: int = 0
    """Files that were not read, for want of time."""
    error: str | None = None
    """Why the folder could not be listed."""


def read_session_files(folder: Path, seconds: float) -> SessionFiles:
    """Read files for at most so long; blocks. Removes nothing, unlike a list of the sessions."""
    end = time.monotonic() + seconds
    files = SessionFiles()
    try:
        entries = sorted(scan(folder, tidy=False))
    except MochiError as failed:
        return SessionFiles(error=failed.message)
    for number, entry in enumerate(entries):
        if time.monotonic() > end:
            files.left = len(entries) - number
            break
        if number % FILES_BETWEEN_YIELDS == 0:
            yield_to_loop()
        _add(files, folder / f"{entry.session_id}.json", entry)
    return files


def _add(files: SessionFiles, path: Path, entry: Entry) -> None:
    try:
        version = _version_of(path, entry)
    except FileNotFoundError:  # removed since it was listed
        return
    except (NotASession, NotMetadata) as failed:
        files.problems[path.name] = str(failed)
    except OSError as failed:
        files.problems[path.name] = failed.strerror or str(failed)
    else:
        files.versions[version] += 1


def _version_of(path: Path, entry: Entry) -> str:
    if entry.problem is not None:
        raise NotASession(entry.problem)
    head = _head_of(path)
    read_metadata(head, entry.session_id)
    return version_of(head)


def _head_of(path: Path) -> JSONObject:
    """Read the metadata; a small file is checked whole, as in the list of sessions."""
    prefix, _ = read_plain(path, PREFIX_BYTES)
    opening = open_prefix(prefix) if len(prefix) == PREFIX_BYTES else None
    if opening is not None:
        return opening.head
    whole = prefix if len(prefix) < PREFIX_BYTES else read_plain(path)[0]
    head: JSONObject = orjson.loads(disassemble(whole).head)
    return head


def session_findings(files: SessionFiles, whose: str) -> Iterator[Finding]:
    """Say what the files of a folder mean for the server."""
    if files.error is not None:
        yield error(files.error, "Let the server read the folder (chown, chmod).")
        return
    total = sum(files.versions.values())
    yield ok(f"{counted(total, 'session')} {whose} can be read.")
    broken = [warning(f"{name}: {reason}", ADVICE) for name, reason in files.problems.items()]
    yield from shortened(
        broken,
        lambda count: note(
            f"{count} files more cannot be read.", "GET /api/v1/sessions lists all."
        ),
    )
    if files.left:
        yield note(f"{files.left:,} files were not looked at, for want of time.")
    yield from _versions(files.versions)


def _versions(versions: Counter[str]) -> Iterator[Finding]:
    other = {version: count for version, count in versions.items() if version != FORMAT_VERSION}
    old = {version: count for version, count in other.items() if version in OLD_VERSIONS}
    if old:
        names = ", ".join(sorted(old))
        yield note(
            f"{counted(sum(old.values()), 'session')} of an older format: {names}.",
            "They work as they are; mochi-server migrate_sessions shows them, and migrates them.",
        )
    new = {version: count for version, count in other.items() if version not in OLD_VERSIONS}
    if new:
        yield note(
            f"{counted(sum(new.values()), 'session')} of a format that this server does not know: "
            f"{', '.join(sorted(new))}.",
            "They work; what this server does not know is kept.",
        )
