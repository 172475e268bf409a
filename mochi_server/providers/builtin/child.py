"""The child process: llama.cpp's server on loopback, as long as some process uses it.

Run by :mod:`.engine`. It ends by itself: when no process holds ``users.lock`` any more (the kernel
gives back the locks of a killed process), and when nobody held ``busy.lock`` for the idle time.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from ...core.leases import FileLock

POLL_SECONDS: Final = 0.25
PROMPT_CACHE_MEBIBYTES: Final = 128

TAKEN: Final = 75
"""Exit code of a child that finds another one running its model."""


def main(
    *, model: str, folder: str, context: int, slots: int, threads: int, idle_seconds: float
) -> NoReturn:
    """Serve until no process uses the model, or nobody has for the idle time; then end."""
    shared = Path(folder)
    owner = FileLock(shared / "child.lock")
    if not _acquire(owner):
        os._exit(TAKEN)
    base_url, key, _server = _serve(model, context=context, slots=slots, threads=threads)
    _announce(shared, base_url, key)
    _watch(shared, idle_seconds)
    (shared / "state.json").unlink(missing_ok=True)
    # An ordinary exit aborts the process: the server's threads are still alive (code 134).
    os._exit(0)


def _acquire(lock: FileLock) -> bool:
    """Try for a moment: a process that only tests the lock may be in the way."""
    for _ in range(20):
        if lock.acquire():
            return True
        time.sleep(0.01)
    return False


def _serve(model: str, *, context: int, slots: int, threads: int) -> tuple[str, str, object]:
    """Load the model and listen; return its address, its key, and what keeps it alive."""
    xllamacpp = import_module("xllamacpp")  # only after the lock; it ships no types
    key = secrets.token_urlsafe(32)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.api_keys = [key]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.cpuparams.n_threads = threads
    # Not set by the former: prompts took twice as long.
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = PROMPT_CACHE_MEBIBYTES
    params.endpoint_slots = False
    params.endpoint_props = False
    params.ui = False
    params.verbosity = 2
    params.offline = True
    server = xllamacpp.Server(params)
    return str(server.listening_address), key, server


def _announce(folder: Path, base_url: str, key: str) -> None:
    """Write the state file, readable by this user alone and locked while this process lives."""
    temporary = folder / f"state.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    lock = FileLock.create(temporary)
    state = {"base_url": f"{base_url}/v1", "api_key": key, "pid": os.getpid()}
    os.write(lock.fileno(), json.dumps(state).encode())
    temporary.replace(folder / "state.json")
    # The descriptor stays open: whoever can share its lock knows that this process is dead.


def _watch(folder: Path, idle_seconds: float) -> None:
    """Return when no process uses this one; then no new request can begin with it."""
    users, busy = FileLock(folder / "users.lock"), FileLock(folder / "busy.lock")
    while folder.is_dir():
        time.sleep(POLL_SECONDS)
        if users.acquire():
            return
        if busy.acquire():
            if time.time() - (folder / "busy.lock").stat().st_mtime > idle_seconds:
                return
            busy.release()
