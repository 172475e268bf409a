"""The process that forks for tools (:mod:`tests.support.forked_tools`), and what its forks do."""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import sys
from dataclasses import dataclass

import mochi_server.tools.process.worker
import mochi_server.tools.process.worker_main  # noqa: F401 - for the forks

from .forking import fork_for_each


@dataclass
class ToolJob:
    """A process of tools that is to be, and in the fork the rest of its life."""

    code: str
    arguments: list[str]
    cwd: str
    env: dict[str, str]
    umask: int
    kept: list[int]
    """The numbers that the files after the standard streams are to have."""
    files: list[int]

    def run(self) -> None:
        """Become ``python -c code …``, as if nothing had been before."""
        numbers = [0, 1, 2, *self.kept]
        free = max(*numbers, *self.files) + 1
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, free) for file in self.files]
        for file in self.files:
            os.close(file)
        for file, number in zip(moved, numbers, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.umask(self.umask)
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.env)
        sys.argv = ["-c", *self.arguments]
        sys.orig_argv = [sys.executable, "-c", self.code, *self.arguments]
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        main = vars(sys.modules["__main__"])
        for name in [name for name in main if not name.startswith("__")]:
            del main[name]
        exec(self.code, main)


def fork_for(control_number: int, output: int) -> ToolJob | None:
    """Fork for each job that comes; the job in a fork, and None at the end in the parent."""
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    gc.collect()
    gc.freeze()
    received = fork_for_each(socket.socket(fileno=control_number), new_session=True)
    return None if received is None else ToolJob(**received[0], files=received[1])
