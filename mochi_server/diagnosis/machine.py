"""The programs that serve, what the system lets them have, and room on the disks."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..config import MochiServerSettings, server_processes
from ..core.aio import in_daemon_thread
from ..core.files import MOST_FILES
from ..core.progress import counted
from ..processes import redis_package_problem, sessions_problem
from ..runtime import Runtime
from ..server.startup import place_of_redis, redis_client
from .findings import Finding, error, note, ok, warning

if TYPE_CHECKING:
    from redis import Redis


FEW_FILES = 4096
FILES_A_STREAM = 3

LITTLE_SPACE, NO_SPACE = 1_000_000_000, 100_000_000
"""Bytes below which there is a warning, and an error."""
FEW_INODES, NO_INODES = 10_000, 1_000

PACKAGES = ("Django", "uvicorn")


async def look_at_machine(runtime: Runtime) -> list[Finding]:  # noqa: ARG001 - like every check
    """Versions, open files, and who asks."""
    programs = [f"mochi-server {__version__}", f"Python {platform.python_version()}"]
    programs += [f"{package} {_version_of(package)}" for package in PACKAGES]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = [ok(", ".join(programs)), files_finding(hard)]
    if os.geteuid() == 0:
        found.append(
            note(
                "This runs as root, who may write everywhere: what another user may do was not "
                "looked at.",
                "Run it as the user that serves; and serve as a user of its own, because tools "
                "may do what that user may.",
            )
        )
    return found


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def files_finding(hard: int) -> Finding:
    """What the hard limit on open files means; the server raises its own limit up to it."""
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    text = f"The server may open {most:,} files; an open stream takes {FILES_A_STREAM}."
    if most >= FEW_FILES:
        return ok(text)
    return warning(text, "Raise the hard limit: ulimit -Hn, or LimitNOFILE= of systemd.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is left on the file system of a folder."""

    path: Path
    free: int
    """Bytes for users."""
    inodes: int | None
    """Files more; None where the file system does not count them."""


async def look_at_space(runtime: Runtime) -> list[Finding]:
    """Room for what is written, on each file system once."""
    rooms = await in_daemon_thread(_rooms, _written_to(runtime.settings))
    return [finding for room in rooms for finding in room_findings(room)]


def _written_to(settings: MochiServerSettings) -> list[Path]:
    if settings.session_storage == "memory":
        return [settings.models_path]
    return [settings.sessions_path, settings.agent_chats_path, settings.models_path]


def _rooms(folders: Iterable[Path]) -> list[Room]:
    """Of the nearest folder that is there; one for each file system."""
    found: dict[int, Room] = {}
    for folder in folders:
        place = next(place for place in (folder, *folder.parents) if os.path.exists(place))  # noqa: PTH110 - raises nothing
        status = os.statvfs(place)
        room = Room(
            path=place,
            free=status.f_bavail * status.f_frsize,
            inodes=status.f_favail if status.f_files else None,
        )
        found.setdefault(place.stat().st_dev, room)
    return list(found.values())


def room_findings(room: Room) -> Sequence[Finding]:
    """Whether there is enough."""
    files = f" and {room.inodes:,} files" if room.inodes is not None else ""
    text = f"Room for {_size(room.free)}{files} at {room.path}."
    help_ = "Remove what is not needed, or name another disk by MOCHI_DATA_DIR."
    inodes = FEW_INODES if room.inodes is None else room.inodes
    if room.free < NO_SPACE or inodes < NO_INODES:
        return [error(text, help_)]
    if room.free < LITTLE_SPACE or inodes < FEW_INODES:
        return [warning(text, help_)]
    return [ok(text)]


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"  # noqa: PLR2004


ANSWER_SECONDS = 2.0
SLOW_SECONDS = 0.1


async def look_at_redis(runtime: Runtime) -> list[Finding]:
    """Whether processes could work together, and what lies between them."""
    settings = runtime.settings
    processes = server_processes(settings)
    if (problem := sessions_problem(settings, processes)) is not None:
        return [error(problem, "See docs/how-to/several-workers.md.")]
    count = counted(processes, "worker")
    if settings.redis_url is None:
        return [ok(f"{count}; confirmations go through the data folder, no Redis is set.")]
    if (problem := redis_package_problem(settings)) is not None:
        return [error(problem, "Install it, or remove MOCHI_REDIS_URL.")]
    return [ok(f"{count}."), await in_daemon_thread(_look, settings.redis_url)]


def _look(url: str) -> Finding:
    from redis import RedisError  # noqa: PLC0415 - an extra, and seldom wanted

    try:
        with closing(redis_client(url, ANSWER_SECONDS)) as client:
            client.ping()
            began = time.monotonic()
            client.ping()
            seconds = time.monotonic() - began
            version = _redis_version(client)
    except (RedisError, OSError, ValueError) as found:
        return error(
            f"Redis at {place_of_redis(url)} cannot be used: {found}",
            "Start it or correct MOCHI_REDIS_URL: no tool call can be confirmed without it.",
        )
    text = f"Redis{version} at {place_of_redis(url)} answers in {seconds * 1000:.0f} ms."
    if seconds > SLOW_SECONDS:
        return warning(text, "Use one that is nearer, or has less to do.")
    return ok(text)


def _redis_version(client: Redis) -> str:
    """Empty where the user may not ask for it."""
    from redis import ResponseError  # noqa: PLC0415

    try:
        return f" {client.info('server')['redis_version']}"
    except ResponseError:
        return ""
