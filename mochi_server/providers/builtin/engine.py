"""One running copy of a model for all processes of a user, started at first use.

The processes share a folder beside the weights:

``users.lock``  shared by every process that may use the model; the child ends when nobody does
``busy.lock``   shared during each request; its time is the last use
``child.lock``  held by the one child
``state.json``  address, key and pid of the child, which keeps it locked while it lives
``child.log``   what llama.cpp said
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import importlib.util
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import anyio
from platformdirs import user_cache_path

from ...config import child_environment
from ...config.installation import install_command
from ...core.aio import in_thread, in_thread_to_completion
from ...core.leases import FileLock, is_locked
from ...errors import ProviderError, ProviderUnreachable
from .child import TAKEN

logger = logging.getLogger(__name__)

START_SECONDS: Final = 120.0
_RUN_CHILD: Final = (
    "import json, sys; sys.path = [path for path in sys.path if path] + [sys.argv.pop(1)]; "
    "from mochi_server.providers.builtin.child import main; main(**json.loads(sys.argv[1]))"
)
"""``-m`` would look for modules in the working directory first, which is the user's."""
POLL_SECONDS: Final = 0.02
EXIT_SECONDS: Final = 5.0


@cache
def missing_requirement() -> str | None:
    """Say why no model can run on this machine, in one line; None when one can."""
    for package in ("xllamacpp", "openai"):
        if importlib.util.find_spec(package) is None:
            return f"package {package} is missing (run: {install_command('local')})"
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError:
            return "system library libgomp.so.1 is missing (install libgomp1, or gcc's libgomp)"
    return None


def run_folder(models: Path) -> Path:
    """Return the folder for locks and state of the models in ``models``; made if need be.

    ``.run`` beside the models, or where those may only be read, a folder in the user's cache, or
    else one in the temporary folder. Every process of a user finds the same one.
    """
    for folder in (models / ".run", user_cache_path("mochi-server") / "run"):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    last = Path(tempfile.gettempdir()) / f"mochi-server-{os.getuid()}"
    if own_folder(last):
        return last
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(last))


def own_folder(folder: Path) -> bool:
    """Return whether a folder is this user's alone, made if need be; others may write beside it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    private = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a child answers, and with which key."""

    base_url: str
    api_key: str
    pid: int


class Engine:
    """The child process of one model file, shared with every other process that uses the file."""

    def __init__(self, model: Path, folder: Path, **options: float) -> None:
        """Start nothing yet; the options are those of the child's ``main``."""
        self._model = model.absolute()
        self._options = options
        self.folder = folder
        self.uses = 0
        self._retired = False
        self._users = FileLock(self.folder / "users.lock")
        self._mutex = threading.Lock()
        """Guards the lock of the users and the process, which threads change."""
        self._process: subprocess.Popen[bytes] | None = None
        self._served = False
        """Whether the process that we started has ever answered."""

    @staticmethod
    def shared_folder(model: Path, context: int) -> Path:
        """Return the folder that the users of a file share: a replaced file has another child."""
        status = model.stat()
        text = f"{model.resolve()}:{status.st_size}:{status.st_mtime_ns}:{context}"
        return run_folder(model.absolute().parent) / hashlib.sha256(text.encode()).hexdigest()[:16]

    @staticmethod
    def is_running(folder: Path) -> bool:
        """Return whether a child answers for the users of this folder."""
        return is_locked(folder / "state.json")

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Endpoint, None]:
        """Provide a child that answers, started if need be, for the length of the block."""
        busy = FileLock(self.folder / "busy.lock")
        self.uses += 1
        try:
            yield await self._reach(busy)
        finally:
            if busy.held:
                busy.touch()
                busy.release()
            self.uses -= 1
            await self._release_if_retired()

    async def retire(self) -> None:
        """Let go of the model after the present requests; an unused child ends by itself."""
        self._retired = True
        await self._release_if_retired()

    async def _release_if_retired(self) -> None:
        if self._retired and not self.uses:
            await in_thread_to_completion(self._release)

    def _release(self) -> None:
        with self._mutex:
            self._users.release()

    async def _reach(self, busy: FileLock) -> Endpoint:
        try:
            with anyio.fail_after(START_SECONDS):
                # The other side is a process: there is no event to wait for.
                while (endpoint := await self._poll(busy)) is None:  # noqa: ASYNC110
                    await anyio.sleep(POLL_SECONDS)
                return endpoint
        except TimeoutError as error:
            raise ProviderUnreachable(
                f"The built-in model did not start in {START_SECONDS:.0f} seconds."
            ) from error
        except OSError as error:
            raise ProviderError(f"The built-in model cannot start: {error}") from error

    async def _poll(self, busy: FileLock) -> Endpoint | None:
        """Return the child without waiting, or None after a step that brings it nearer."""
        if not await in_thread(self._acquire):
            return None
        # Not in a thread, which would go on and take the lock after a cancellation.
        if not busy.held and not busy.acquire(shared=True):
            return None
        return await in_thread(self._running_or_start)

    def _running_or_start(self) -> Endpoint | None:
        with self._mutex:
            endpoint = self._running()
            if endpoint is None:
                self._start()
            elif self._process is not None and endpoint.pid == self._process.pid:
                self._served = True
            return endpoint

    def _acquire(self) -> bool:
        """Become one of the users; False for a moment while the child looks for users."""
        with self._mutex:
            if self._users.held:
                return True
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._users.acquire(shared=True)

    def _running(self) -> Endpoint | None:
        if not self.is_running(self.folder):
            return None
        try:
            return Endpoint(**json.loads((self.folder / "state.json").read_bytes()))
        except FileNotFoundError:
            return None

    def _start(self) -> None:
        """Start a child unless one is starting; of several, one wins and the others end."""
        if self._process is not None and self._process.poll() is None:
            return
        if is_locked(self.folder / "child.lock"):
            return
        process, self._process = self._process, None
        if process is not None and not self._served and process.returncode not in {0, TAKEN}:
            raise ProviderError(
                f"The built-in model {self._model.name} cannot be loaded: {self._last_words()}",
                details={"exit_code": process.returncode},
            )
        self._spawn()

    def _last_words(self) -> str:
        """Return llama.cpp's first error, else the last line of its log."""
        text = (self.folder / "child.log").read_text("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return next((line for line in lines if " E " in line), (lines or ["no reason given"])[-1])

    def _spawn(self) -> None:
        options = {"model": str(self._model), "folder": str(self.folder), **self._options}
        place = str(Path(__file__).parents[3])
        arguments = [sys.executable, "-c", _RUN_CHILD, place, json.dumps(options)]
        self._served = False
        log = os.open(self.folder / "child.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # passive: busy waiting of the threads starves everything else on a small machine.
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env=child_environment(OMP_WAIT_POLICY="passive"),
            )
        finally:
            os.close(log)
        # Somebody must collect its exit code, whenever that comes.
        threading.Thread(target=self._process.wait, daemon=True, name="mochi-child").start()
        logger.info("Starting the built-in model %s (pid %s)", self._model.name, self._process.pid)

    async def aclose(self) -> None:
        """Stop using the model; the last user ends the child and waits for its end."""
        await in_thread(self._release_and_stop)

    def _release_and_stop(self) -> None:
        with self._mutex:
            if not self._users.held:
                return
            self._users.release()
            last = FileLock(self.folder / "users.lock")
            try:
                if last.acquire():
                    self._stop()
                elif last.acquire(shared=True):
                    return  # others use it
                self._wait_for_end()  # of a child, perhaps, that has just seen that nobody does
            finally:
                last.release()

    def _stop(self) -> None:
        """Stop a child that nobody uses: our own, also while it loads, or another process's."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        elif (endpoint := self._running()) is not None:
            os.kill(endpoint.pid, signal.SIGTERM)
        self._process = None

    def _wait_for_end(self) -> None:
        deadline = time.monotonic() + EXIT_SECONDS
        while is_locked(self.folder / "child.lock") and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
