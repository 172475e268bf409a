"""The data: rights of its folders, room on its disks, what crashes have left, session files."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from ..config import MochiServerSettings
from ..constants import FORMAT_VERSION
from ..core.aio import in_daemon_thread, yield_to_loop
from ..core.files import read_plain
from ..core.leases import is_abandoned
from ..core.progress import counted
from ..errors import JSONObject, MochiError
from ..runtime import Runtime
from ..server.startup import folder_problem
from ..sessions import SessionManager
from ..sessions.catalogue.refresh import PREFIX_BYTES
from ..sessions.codec import NotASession, disassemble, open_prefix
from ..sessions.storage.base import Entry
from ..sessions.storage.json_files import LEFTOVER, LEFTOVER_SECONDS, JSONFileStorage, scan
from ..sessions.versions import OLD_VERSIONS, NotMetadata, read_metadata, version_of
from .findings import Finding, error, note, ok, shortened, warning

LITTLE_SPACE, NO_SPACE = 1_000_000_000, 100_000_000
"""Bytes below which there is a warning, and an error."""
FEW_INODES, NO_INODES = 10_000, 1_000


@dataclass(frozen=True, slots=True)
class DataFolder:
    """One folder, and what the server does with it."""

    name: str
    path: Path
    setting: str
    needed: bool = True
    """Whether nothing can be stored without writing here."""
    code: bool = False
    """Whether what lies here is run."""


async def check_folders(runtime: Runtime) -> list[Finding]:
    return await in_daemon_thread(_all_findings, runtime.settings)


def _all_findings(settings: MochiServerSettings) -> list[Finding]:
    data = DataFolder("data", settings.within_data(Path()), "MOCHI_DATA_DIR")
    findings = list(folder_findings(data))
    if any(finding.level == "error" for finding in findings):
        return findings
    folders = [
        DataFolder("tools", settings.tools_path, "MOCHI_TOOLS_DIR", needed=False, code=True),
        DataFolder("agents", settings.agents_path, "MOCHI_AGENTS_DIR", needed=False, code=True),
        DataFolder(
            "system prompts", settings.system_prompts_path, "MOCHI_SYSTEM_PROMPTS_DIR", needed=False
        ),
        DataFolder("presets", settings.presets_path, "MOCHI_DATA_DIR", needed=False),
    ]
    if settings.session_storage == "json":
        folders[:0] = [
            DataFolder("sessions", settings.sessions_path, "MOCHI_SESSIONS_DIR"),
            DataFolder("sessions of agents", settings.agent_chats_path, "MOCHI_AGENT_CHATS_DIR"),
            # Its cache holds pickled Python.
            DataFolder("state of processes", settings.state_path, "MOCHI_DATA_DIR", code=True),
        ]
    return [*findings, *(finding for folder in folders for finding in folder_findings(folder))]


def folder_findings(folder: DataFolder) -> Iterator[Finding]:
    """Say what is wrong with a folder, else where it is; blocks."""
    try:
        problem, exists = _problem(folder), folder.path.exists()
    except OSError as failed:  # a folder above it may not be entered
        problem, exists = f"{folder.path} cannot be looked at: {failed.strerror}.", False
    if problem is not None:
        advice = f"Correct that (ls -ld, chown, chmod), or name another one: {folder.setting}."
        yield error(f"{folder.name}: {problem}", advice)
    elif not exists:
        yield ok(f"{folder.name}: {folder.path} (not there yet)")
    elif folder.code and folder.path.stat().st_mode & stat.S_IWOTH:
        yield warning(
            f"{folder.name}: {folder.path} can be written by every user of this machine, and what "
            "lies there is run.",
            f"chmod o-w {folder.path}",
        )
    else:
        yield ok(f"{folder.name}: {folder.path}")


def _problem(folder: DataFolder) -> str | None:
    path = folder.path
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to nothing."
    read_only = not folder.needed and path.is_dir()
    problem = None if read_only else folder_problem(path)
    if problem is None and path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        return f"{path} cannot be read."
    return problem if folder.needed or path.exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """What is left on the file system of a folder."""

    path: Path
    free: int
    inodes: int | None
    """Files that can still be made; None where the file system does not count them."""


async def check_space(runtime: Runtime) -> list[Finding]:
    """Check the room for what is written, on each file system once."""
    settings = runtime.settings
    written = [settings.models_path]
    if settings.session_storage == "json":
        written = [settings.sessions_path, settings.agent_chats_path, settings.models_path]
    return [space_finding(space) for space in await in_daemon_thread(_spaces, written)]


def _spaces(folders: Iterable[Path]) -> list[DiskSpace]:
    """Return the space of each file system, seen from the nearest folder that exists."""
    spaces: dict[int, DiskSpace] = {}
    for folder in folders:
        nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - raises nothing
        status = os.statvfs(nearest)
        space = DiskSpace(
            path=nearest,
            free=status.f_bavail * status.f_frsize,
            inodes=status.f_favail if status.f_files else None,
        )
        spaces.setdefault(nearest.stat().st_dev, space)
    return list(spaces.values())


def space_finding(space: DiskSpace) -> Finding:
    files = f" and {space.inodes:,} files" if space.inodes is not None else ""
    text = f"Room for {_size(space.free)}{files} at {space.path}."
    advice = "Remove what is not needed, or name another disk by MOCHI_DATA_DIR."
    inodes = FEW_INODES if space.inodes is None else space.inodes
    if space.free < NO_SPACE or inodes < NO_INODES:
        return error(text, advice)
    if space.free < LITTLE_SPACE or inodes < FEW_INODES:
        return warning(text, advice)
    return ok(text)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"  # noqa: PLR2004


async def check_leftovers(runtime: Runtime) -> list[Finding]:
    """Find temporary files of processes that crashed.

    Whether a session's lock is held is not tried: who tries has it for a moment, and may refuse a
    turn by it.
    """
    return await in_daemon_thread(lambda: list(_leftovers(runtime.settings)))


def _leftovers(settings: MochiServerSettings) -> Iterator[Finding]:
    for folder in (settings.sessions_path, settings.agent_chats_path):
        files: list[Path] = []
        with suppress(OSError):
            files = sorted(path for path in folder.iterdir() if _is_leftover(path))
        if files:
            yield note(
                f"{folder} has {counted(len(files), 'temporary file')} of processes that died, "
                f"such as {files[0].name}.",
                "Nothing: a server removes them when it lists the sessions.",
            )


def _is_leftover(path: Path) -> bool:
    with suppress(OSError):
        is_one = LEFTOVER.fullmatch(path.name) is not None
        return is_one and is_abandoned(path, LEFTOVER_SECONDS)
    return False


READ_SECONDS = 4.5
"""Longest time for the files of all folders; ten thousand take about a second."""

FILES_BETWEEN_YIELDS = 64
"""Files that are read before other threads may run."""

ADVICE = "Correct or move it away: it is left as it is, and hides no other session."


async def check_sessions(runtime: Runtime) -> list[Finding]:
    end = time.monotonic() + READ_SECONDS
    findings: list[Finding] = []
    try:
        findings += await _check(runtime.sessions, "of people", end)
        findings += await _check(runtime.agent_sessions, "of agents", end)
    except MochiError as failed:  # most likely, both are in the same storage
        findings.append(
            error(f"The sessions cannot be listed: {failed.message}", "See the storage.")
        )
    return findings


async def _check(sessions: SessionManager, whose: str, end: float) -> list[Finding]:
    if isinstance(sessions.storage, JSONFileStorage):
        seconds = max(0.0, end - time.monotonic())
        files = await in_daemon_thread(read_session_files, sessions.storage.folder, seconds)
        return list(session_findings(files, whose))
    listing = await sessions.list()
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
    if files.error is not None:
        yield error(files.error, "Let the server read the folder (chown, chmod).")
        return
    total = sum(files.versions.values())
    yield ok(f"{counted(total, 'session')} {whose} can be read.")
    broken = [warning(f"{name}: {reason}", ADVICE) for name, reason in files.problems.items()]
    more, advice = "{} files more cannot be read.", "GET /api/v1/sessions lists all."
    yield from shortened(broken, lambda count: note(more.format(count), advice))
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
