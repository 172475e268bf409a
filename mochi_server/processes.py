"""The processes of one server: whether they can work together, and how they end together."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from importlib.util import find_spec
from multiprocessing import resource_tracker

from .config import MochiServerSettings, with_tool_environment
from .config.installation import install_command

_PR_SET_DUMPABLE = 4
"""As ``linux/prctl.h`` has it."""


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


def forbid_inspection() -> None:
    """Let no other process of this user read this one's memory and environment.

    Tools run as the same user, and would find keys in ``/proc``. Root is not kept out. There is no
    core file of such a process, and no debugger of the same user can attach to it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def start_resource_tracker() -> None:
    """Start the helper process of `multiprocessing` without secrets.

    Otherwise it would start with the workers, with the whole environment, which tools can read.
    """
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
