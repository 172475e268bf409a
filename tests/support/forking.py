"""A process that forks for each job that comes over a socket; it imports next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from pathlib import Path
from typing import Any

MOST_FILES = 16


def fork_for_each(
    control: socket.socket, *, new_session: bool = False
) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each job that comes; the job and its files in a fork, None at the end in the parent.

    A job is JSON, with its files; over the last of these goes the process id, then the exit code.
    With ``new_session`` each fork leads a session and a group of its own.

    Raises:
        RuntimeError: There are threads, which a fork would not have.
    """
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}  # pid and status by pidfd
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                selector.unregister(key.fd)
                os.close(key.fd)
                pid, status = running.pop(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with status, contextlib.suppress(OSError):
                    status.sendall(str(code).encode())
                continue
            content, files, _, _ = socket.recv_fds(control, 1 << 20, MOST_FILES)
            if not content:
                return None
            _refuse_threads()
            status = socket.socket(fileno=files.pop())
            if (pid := os.fork()) == 0:
                if new_session:  # before its id is told, by which the group may be killed
                    os.setsid()
                with contextlib.suppress(OSError):  # who has asked for it may have been killed
                    status.sendall(str(os.getpid()).encode())
                selector.close()
                for opened in (control, status, *(status for _, status in running.values())):
                    opened.close()
                for pidfd in running:
                    os.close(pidfd)
                return json.loads(content), files
            for file in files:
                os.close(file)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, status
            selector.register(pidfd, selectors.EVENT_READ)


def _refuse_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise RuntimeError(f"there are {threads} threads; a fork would have one")
