"""The programs that serve, what the system lets them have, and Redis where one is named."""

from __future__ import annotations

import os
import platform
import resource
import time
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from .. import __version__
from ..config import server_processes
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
PACKAGES = ("Django", "uvicorn")

REDIS_SECONDS = 2.0
SLOW_REDIS_SECONDS = 0.1


async def check_machine(runtime: Runtime) -> list[Finding]:  # noqa: ARG001 - like every check
    """Check versions, the limit on open files, and the user who asks."""
    programs = [f"mochi-server {__version__}", f"Python {platform.python_version()}"]
    programs += [f"{package} {_version_of(package)}" for package in PACKAGES]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = [ok(", ".join(programs)), files_finding(hard)]
    if os.geteuid() == 0:
        findings.append(
            note(
                "This runs as root, who may write everywhere: what another user may do was not "
                "looked at.",
                "Run it as the user that serves; and serve as a user of its own, because tools "
                "may do what that user may.",
            )
        )
    return findings


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def files_finding(hard: int) -> Finding:
    """Judge the hard limit on open files; the server raises its own limit up to it."""
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    text = f"The server may open {most:,} files; an open stream takes {FILES_A_STREAM}."
    if most >= FEW_FILES:
        return ok(text)
    return warning(text, "Raise the hard limit: ulimit -Hn, or LimitNOFILE= of systemd.")


async def check_redis(runtime: Runtime) -> list[Finding]:
    """Check whether the processes can work together, and Redis if it lies between them."""
    settings = runtime.settings
    processes = server_processes(settings)
    if (problem := sessions_problem(settings, processes)) is not None:
        return [error(problem, "See docs/how-to/several-workers.md.")]
    count = counted(processes, "worker")
    if settings.redis_url is None:
        return [ok(f"{count}; confirmations go through the data folder, no Redis is set.")]
    if (problem := redis_package_problem(settings)) is not None:
        return [error(problem, "Install it, or remove MOCHI_REDIS_URL.")]
    return [ok(f"{count}."), await in_daemon_thread(_redis_finding, settings.redis_url)]


def _redis_finding(url: str) -> Finding:
    from redis import RedisError  # noqa: PLC0415 - an extra

    try:
        with closing(redis_client(url, REDIS_SECONDS)) as client:
            client.ping()
            began = time.monotonic()
            client.ping()
            seconds = time.monotonic() - began
            redis_version = _redis_version(client)
    except (RedisError, OSError, ValueError) as failed:
        return error(
            f"Redis at {place_of_redis(url)} cannot be used: {failed}",
            "Start it or correct MOCHI_REDIS_URL: no tool call can be confirmed without it.",
        )
    text = f"Redis{redis_version} at {place_of_redis(url)} answers in {seconds * 1000:.0f} ms."
    if seconds > SLOW_REDIS_SECONDS:
        return warning(text, "Use one that is nearer, or has less to do.")
    return ok(text)


def _redis_version(client: Redis) -> str:
    """Return the version after a blank; an empty text where the user may not ask for it."""
    from redis import ResponseError  # noqa: PLC0415

    try:
        return f" {client.info('server')['redis_version']}"
    except ResponseError:
        return ""
