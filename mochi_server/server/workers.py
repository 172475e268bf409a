"""Several processes that serve: forks of one that has imported the application.

Uvicorn's supervisor would start each worker as a new interpreter, which imports everything again.
A fork shares what is imported, also one that takes the place of a worker that died.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
from collections.abc import Callable
from multiprocessing.context import ForkProcess

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess, multiprocess


class _Worker(ForkProcess):
    """A worker that is no copy of the supervisor where signals are concerned."""

    def start(self) -> None:
        """Fork; no signal reaches the worker before it would end by it."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, multiprocess.SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def run(self) -> None:
        for number in multiprocess.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, multiprocess.SIGNALS)
        with contextlib.suppress(KeyboardInterrupt):  # it has stopped in order
            super().run()


class _Supervisor(Multiprocess):
    def __init__(self, config: Config, sock: socket.socket, started: Callable[[], object]) -> None:
        super().__init__(config, sockets=[sock])
        self._started = started

    def init_processes(self) -> None:
        super().init_processes()
        self._started()


def run_workers(config: Config, sock: socket.socket, started: Callable[[], object]) -> bool:
    """Serve in several processes until a signal ends them, and return whether they started.

    ``started`` is called when all are forked: a fork has no threads but the one that forks.
    """
    config.load()
    gc.freeze()
    multiprocess.get_subprocess = _new_worker  # type: ignore[attr-defined, assignment]
    supervisor = _Supervisor(config, sock, started)
    supervisor.run()
    return all(child.exitcode != STARTUP_FAILURE for child in supervisor.processes)


def _new_worker(_: Config, target: Callable[..., None], sockets: list[socket.socket]) -> _Worker:
    return _Worker(target=target, kwargs={"sockets": sockets})
