"""Work of tests in a process to which the rights of files apply, also where root runs the tests."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run_unprivileged(work: Callable[[Path], Coroutine[object, object, None]], folder: Path) -> None:
    """Await ``work(folder)``, a function of a module, in a process of its own.

    Becoming another user within a worker of pytest would not do: imports fail meanwhile where
    Python lies in a folder of root, and a codec that was not found is never looked for again.
    """
    command = [sys.executable, "-m", __name__, work.__module__, work.__name__, str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.PIPE, timeout=100)
    assert done.returncode == 0, done.stderr.decode()


def drop_capabilities() -> None:
    """Give up what root may do beyond the rights of its own files; see capset(2)."""
    version_3_of_this_thread = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None).capset(version_3_of_this_thread, none) != 0:
        raise OSError("capset failed")


if __name__ == "__main__":
    module, name, path = sys.argv[1:]
    function = getattr(import_module(module), name)
    if os.geteuid() == 0:
        drop_capabilities()
    asyncio.run(function(Path(path)))
