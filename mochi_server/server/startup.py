"""The start of the server: what it needs, its socket and processes, the lines that it prints."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import http.client
import json
import multiprocessing
import os
import re
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from ipaddress import ip_address
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..config import MochiServerSettings, SettingsError, with_tool_environment
from ..config.installation import install_command, own_command
from ..core.files import make_folder
from ..core.progress import counted
from ..errors import ProviderNotConfigured

if TYPE_CHECKING:
    from redis import Redis

READY_SECONDS = 60.0
"""Longest wait for the first answer of our own server."""

REDIS_SECONDS = 3.0
"""Longest wait for Redis at the start."""

MODELS_SECONDS = 15.0
"""Longest wait for the list of models."""

_PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)
"""Names of models that a shell takes as they are."""


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
    if settings.redis_url is not None:
        if (problem := redis_package_problem(settings)) is not None:
            raise CannotStart(problem)
        _check_redis(settings.redis_url)
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
    if settings.redis_url is None or find_spec("channels_redis") is not None:
        return None
    return (
        "MOCHI_REDIS_URL is set, and the package channels-redis is missing: "
        f"{install_command('redis')}"
    )


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


class Announcement:
    """The lines that a person sees once the server answers, which is asked over HTTP."""

    def __init__(
        self,
        program: str,
        settings: MochiServerSettings,
        sock: socket.socket,
        write: Callable[[str], object],
    ) -> None:
        self.program = program
        self.settings = settings
        self.host, self.port = address_of(sock)
        self.url = url_of(self.host, self.port)
        self.everywhere = ip_address(sock.getsockname()[0]).is_unspecified
        self._write = write

    def run(self) -> None:
        """Wait until the server answers, and print what it has."""
        health = self._wait()
        if health is None:
            return
        self._say(f"{self.program} listens on {self.url}")
        if self.everywhere:
            host = self.settings.host
            self._say(f"  and on every other address of this machine, as MOCHI_HOST is {host}")
        self._say(f"  documentation: {self.url}/api/v1/docs")
        if self.settings.session_storage == "json":
            self._say(f"  sessions: {self.settings.sessions_path}")
        else:
            self._say("  sessions: in memory, gone when the server stops")
        if self.settings.api_token is None and is_public(self.settings.host):
            self._say("  WARNING: open to the network without a token; set MOCHI_API_TOKEN")
        models, problems = self._models()
        for line in provider_lines(health, models, problems):
            self._say(f"  {line}")
        for line in self._invitation(models):
            self._say(line)

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody reads what we print
            self._write(f"{line}\n")

    def _wait(self) -> dict[str, Any] | None:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                return self._get("/api/v1/health", READY_SECONDS)
            time.sleep(0.05)
        return None

    def _models(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        try:
            answer = self._get("/api/v1/models", MODELS_SECONDS)
        except (OSError, http.client.HTTPException, ValueError):
            return [], []
        details = answer.get("error", {}).get("details", {})
        return answer.get("models", []), answer.get("problems", details.get("problems", []))

    def _get(self, path: str, seconds: float) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        headers = {}
        if self.settings.api_token is not None:
            headers["Authorization"] = f"Bearer {self.settings.api_token.get_secret_value()}"
        try:
            connection.request("GET", path, headers=headers)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {}

    def _invitation(self, models: list[dict[str, Any]]) -> Iterator[str]:
        if not models:
            from ..providers.builtin.engine import missing_requirement  # noqa: PLC0415 - rarely needed

            if (problem := missing_requirement()) is None:
                yield f"No model yet. For the small built-in one:  {own_command()} pull"
            else:
                yield f"No model yet. The small built-in one cannot run: {problem}"
            yield "Or, with Ollama (https://ollama.com):  ollama pull qwen3:8b"
            return
        # A model server names its models; a name that a shell could take for more is not printed.
        name = next((model["name"] for model in models if _PLAIN.fullmatch(model["name"])), "MODEL")
        token = ' -H "Authorization: Bearer $MOCHI_API_TOKEN"' if self.settings.api_token else ""
        body = shlex.quote(json.dumps({"model": name, "message": "Hello!"}))
        yield "Try:"
        yield f"  curl -N{token} {self.url}/api/v1/chat/stream -d {body}"


def provider_lines(
    health: dict[str, Any], models: list[dict[str, Any]], problems: list[dict[str, Any]]
) -> Iterator[str]:
    """Yield a line for each provider: how many models it has, or why it has none."""
    count = Counter(model.get("provider") for model in models)
    reasons = {
        problem["provider"]: problem["message"]
        for problem in problems
        if problem["code"] == ProviderNotConfigured.code
    }
    providers = health.get("providers", {})
    for alias, state in providers.items():
        if alias == "test" and len(providers) > 1 and not count[alias]:
            continue  # beside real ones, for those who know of it
        where = f" at {health.get('ollama_host')}" if alias == "ollama" else ""
        if alias in reasons:
            yield f"{alias}{where}: {reasons[alias]}"
        elif state.get("reachable") or count[alias]:
            yield f"{alias}{where}: {counted(count[alias], 'model')}"
        else:
            yield f"{alias}{where}: does not answer"


def forbid_inspection() -> None:
    """Let no other process of this user read this one's memory and environment.

    Tools run as the same user, and would find keys in ``/proc``. Root is not kept out. There is no
    core file of such a process, and no debugger of the same user can attach to it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE of linux/prctl.h


def start_resource_tracker() -> None:
    """Start the helper process of `multiprocessing` without secrets: tools can read it."""
    with with_tool_environment():
        resource_tracker.ensure_running()


def stop_with_supervisor() -> None:
    """Stop this process in order when the one that started it as a worker is gone.

    A supervisor that is killed can tell its workers nothing, and they would keep the port. The
    kernel closes its end of a pipe, whose other end `multiprocessing` has given to the worker.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def wait_and_stop() -> None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_and_stop, name="watch the supervisor", daemon=True).start()
