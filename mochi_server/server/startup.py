"""What is checked and set up before the server serves: packages, folder, Redis, socket, process."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..config import (
    METRICS_FOLDER,
    MochiServerSettings,
    SettingsError,
    export_default,
    metrics_folder,
)
from ..config.installation import install_command, own_command
from ..core.files import make_folder

if TYPE_CHECKING:
    from redis import Redis

REDIS_SECONDS = 3.0
"""Longest wait for Redis at the start."""

_POSTGRESQL = ("psycopg", "psycopg")

DATABASE_DRIVERS = {
    "postgres": _POSTGRESQL,
    "postgresql": _POSTGRESQL,
    "pgsql": _POSTGRESQL,
    "mysql": ("mysqlclient", "MySQLdb"),
    "oracle": ("oracledb", "oracledb"),
}
"""Package and module of the driver, by the scheme of the address."""


class CannotStart(Exception):
    """The server cannot start; the text is one line that says what to do."""


def folder_problem(path: Path) -> str | None:
    """Return why a folder could not be made or written, without trying to."""
    existing = next(place for place in (path, *path.parents) if place.exists())
    if not existing.is_dir():
        return f"{existing} is not a folder."
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written."
    return None


def check_start(settings: MochiServerSettings) -> None:
    """Check that the workers can work together, and that packages, Redis and the folder are usable.

    Raises:
        SettingsError: The workers would not see each other's sessions.
        CannotStart: Something is missing or cannot be used.
    """
    if (problem := sessions_problem(settings, settings.workers)) is not None:
        raise SettingsError(problem)
    if settings.environment == "test" and find_spec("openai") is None:
        raise CannotStart(f"Test mode needs the package openai: {install_command('openai')}")
    if settings.strip_images and find_spec("PIL") is None:
        advice = install_command("images")
        raise CannotStart(f"MOCHI_STRIP_IMAGES is set, and the package pillow is missing: {advice}")
    if (problem := metrics_package_problem(settings)) is not None:
        raise CannotStart(problem)
    if settings.redis_url is not None:
        if (problem := redis_package_problem(settings)) is not None:
            raise CannotStart(problem)
        _check_redis(settings.redis_url)
    if (problem := database_package_problem(settings)) is not None:
        raise CannotStart(problem)
    if settings.session_storage == "json":
        _prepare_folder(settings.sessions_path)


def _check_redis(url: str) -> None:
    from redis import RedisError  # noqa: PLC0415 - an extra

    try:
        with closing(redis_client(url, REDIS_SECONDS)) as client:
            client.set("mochi:start", "1", ex=1)
    except (RedisError, OSError, ValueError) as error:
        place = place_of_redis(url)
        raise CannotStart(f"Redis at {place} (MOCHI_REDIS_URL) cannot be used: {error}") from error


def _prepare_folder(folder: Path) -> None:
    """Make the folder of the sessions and write to it."""
    try:
        make_folder(folder, private=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CannotStart(
            f"The data folder {folder} cannot be written: {error.strerror}. "
            "Name another one by --data-dir or MOCHI_DATA_DIR."
        ) from error


def sessions_problem(settings: MochiServerSettings, processes: int) -> str | None:
    """Return why so many processes cannot serve these sessions, or None."""
    if processes < 2 or settings.session_storage != "memory":  # noqa: PLR2004
        return None
    testing = settings.environment == "test"
    cause = "Test mode" if testing else "MOCHI_SESSION_STORAGE=memory"
    instead = "." if testing else ", or MOCHI_SESSION_STORAGE=json."
    return (
        f"{cause} is for one process, and {processes} were asked for: each would have sessions of "
        f"its own. Take one worker{instead}"
    )


def redis_package_problem(settings: MochiServerSettings) -> str | None:
    """Return why the Redis of the settings cannot be used, or None."""
    if settings.redis_url is None:
        return None
    for package, module in (("redis", "redis"), ("channels-redis", "channels_redis")):
        if find_spec(module) is None:
            advice = install_command("redis")
            return f"MOCHI_REDIS_URL is set, and the package {package} is missing: {advice}"
    return None


def database_package_problem(settings: MochiServerSettings) -> str | None:
    """Return why the database of the settings cannot be used, or None."""
    if settings.database_url is None:
        return None
    driver = DATABASE_DRIVERS.get(settings.database_url.partition("://")[0])
    for package, module in filter(None, (("dj-database-url", "dj_database_url"), driver)):
        if find_spec(module) is None:
            is_in_extra = package in {"dj-database-url", "psycopg"}
            advice = install_command("database") if is_in_extra else f"pip install {package}"
            return f"MOCHI_DATABASE_URL is set, and the package {package} is missing: {advice}"
    return None


def storage_package_problem(settings: MochiServerSettings) -> str | None:
    """Return why the storage of the sessions lacks a package, or None."""
    problems = {"redis": redis_package_problem, "database": database_package_problem}
    problem = problems.get(settings.session_storage)
    return None if problem is None else problem(settings)


def metrics_package_problem(settings: MochiServerSettings) -> str | None:
    """Return why there can be no metrics although they are switched on, or None."""
    if not settings.metrics or find_spec("prometheus_client") is not None:
        return None
    advice = install_command("metrics")
    return f"MOCHI_METRICS is set, and the package prometheus-client is missing: {advice}"


def metrics_folder_problem(settings: MochiServerSettings, processes: int) -> str | None:
    """Return why the metrics of so many processes could not be put together, or None."""
    if not settings.metrics or processes < 2 or metrics_folder() is not None:  # noqa: PLR2004
        return None
    return (
        f"MOCHI_METRICS is set, and {processes} processes serve: each would answer with its own "
        f"metrics. Set {METRICS_FOLDER} to an empty folder; mochi-server --workers does it itself."
    )


@contextmanager
def shared_metrics(settings: MochiServerSettings) -> Iterator[None]:
    """Name a folder for the metrics of the workers, which is there until the block ends."""
    if metrics_folder_problem(settings, settings.workers) is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="mochi-metrics-") as folder:
        export_default(METRICS_FOLDER, folder)
        yield


def redis_client(url: str, seconds: float) -> Redis:
    """Return a client that tries once, and waits so long for a connection and for an answer.

    Raises:
        ValueError: The address has options that do not exist.
    """
    from redis import Redis  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=seconds,
        socket_timeout=seconds,
    )


def place_of_redis(url: str) -> str:
    """Return the address without user, password and options, which may hold a password too."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def data_folder_choice(problem: str, *words: str) -> str:
    """Return the problem and two commands to choose from; ``words`` stand behind their options."""
    options = ("--data-dir data", "--data-dir .")
    new, here = (
        " ".join([own_command(), option, shlex.join(words)]).rstrip() for option in options
    )
    return (
        f"{problem} Choose one of the two:\n"
        f"  {new}    # the folder data in it, which may be new\n"
        f"  {here}    # this folder"
    )


def accepts_data_folder(problem: str) -> bool:
    """Ask whether to use the working directory; return False without a terminal."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{problem}\nUse it as the data folder? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Raises:
        CannotStart: The address is taken, forbidden, or none of this machine.
    """
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotStart(f"Cannot listen on {host!r} (MOCHI_HOST): {error.strerror}.") from error
    # A name such as localhost may have several addresses: that of IPv4, which all clients try.
    family, kind, number, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise CannotStart(_socket_problem(host, port, error)) from error
    return sock  # not inheritable: a program that a tool leaves behind would keep the port


def _socket_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is in use. Choose another one by --port or MOCHI_PORT."
    if error.errno == errno.EACCES:
        return (
            f"Port {port} is for privileged users. Choose one above 1023 by --port or MOCHI_PORT."
        )
    return f"Cannot listen on {host} port {port} (MOCHI_HOST, MOCHI_PORT): {error.strerror}."


def is_public(host: str) -> bool:
    """Return whether others can reach a server that listens there."""
    if host.lower() == "localhost":
        return False
    try:
        return not ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True


def address_of(sock: socket.socket) -> tuple[str, int]:
    """Return where to connect to a listening socket from this machine."""
    host, port = sock.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def forbid_inspection() -> None:
    """Let no other process of this user read this one's memory and environment.

    Tools run as the same user, and would find keys in ``/proc``. Root is not kept out. There is no
    core file of such a process, and no debugger of the same user can attach to it.
    """
    if sys.platform == "linux":
        _prctl(4, 0)  # PR_SET_DUMPABLE


def stop_with_supervisor() -> None:
    """Stop this process in order when the one that started it as a worker is gone.

    A supervisor that is killed can tell its workers nothing, and they would keep the port. Linux
    tells them. Elsewhere the kernel closes the supervisor's end of a pipe, whose other end
    `multiprocessing` has given to the worker; forks see that one after another, as each has the
    ends of those before it.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return
    if sys.platform == "linux":
        _prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != supervisor.pid:  # it was gone before
            os.kill(os.getpid(), signal.SIGTERM)
        return

    def wait_and_stop() -> None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_and_stop, name="watch the supervisor", daemon=True).start()


def _prctl(option: int, value: int) -> None:
    """Set a property of this process, by its number in linux/prctl.h."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
