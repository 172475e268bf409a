"""The start of a tool's process, which serves one folder, one call at a time.

:mod:`.worker_process` starts it: :func:`main` with two open file descriptors (a socket, and a pipe
that ends with the server) and a number of bytes. The process ends when the server closes the
socket, and is killed with all that it started when the server dies, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import io
import os
import resource
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .protocol import LENGTH_BYTES, BadFrame, length_of, unpack

EXIT_SECONDS = 0.4
"""How long what runs at exit (``atexit``, threads) may take."""


def main(arguments: list[str]) -> None:
    """Serve until the server closes the socket; ``[SOCKET, LIFELINE, MEMORY]``."""
    descriptor, lifeline, memory = (int(argument) for argument in arguments)
    _close_all_but({0, 1, 2, descriptor, lifeline})
    _die_with_the_server(lifeline)
    from .worker import Worker  # noqa: PLC0415 - slow; by now this dies with the server

    worker = Worker()
    _limit(worker.memory_at_start + memory)
    _prepare_output()
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
    link = socket.socket(fileno=descriptor)
    link.settimeout(None)
    requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    threading.Thread(target=_read, args=(link, requests), daemon=True, name="mochi-wire").start()
    worker.send = link.sendall
    while (request := requests.get()) is not None:
        link.sendall(worker.answer(request))


def _close_all_but(kept: set[int]) -> None:
    """Close what came along from the server, such as the socket that it listens on.

    uvloop leaves everything open that is inheritable, as it is in one of several workers.
    """
    folder = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    for number in [int(path.name) for path in folder.iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the one of this look is closed by now
                os.close(number)


def _die_with_the_server(lifeline: int) -> None:
    """Let the kernel kill this process group when the server's end of a pipe is closed.

    That works while the interpreter is busy in C code, and it reaches the tools' own children;
    neither a thread nor PR_SET_PDEATHSIG does both. Elsewhere than on Linux :func:`_read` sees it.
    """
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - positional only
    if sys.platform != "linux":
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it died before we listened
        os.killpg(0, signal.SIGKILL)


def _limit(memory: int) -> None:
    """Limit the memory of this process; leave no core files in the user's folder."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    # Not RLIMIT_AS: libraries reserve address space by the gigabyte that they never use.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or memory < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with contextlib.suppress(OSError):  # when memory runs out: us, not the server
        Path("/proc/self/oom_score_adj").write_text("500")


def _prepare_output() -> None:
    """Send lines when they are complete, and refuse no text."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _read(link: socket.socket, requests: SimpleQueue[dict[str, Any] | None]) -> None:
    """Hand requests to the main thread, then its end; kill the process if that does not come."""
    with contextlib.suppress(OSError, EOFError, BadFrame):
        while True:
            requests.put(unpack(_exactly(link, length_of(_exactly(link, LENGTH_BYTES)))))
    requests.put(None)
    threading.Event().wait(EXIT_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _exactly(link: socket.socket, count: int) -> bytes:
    """Receive that many bytes; EOFError if the socket was closed before."""
    parts = bytearray()
    while len(parts) < count:
        if not (part := link.recv(min(count - len(parts), 1 << 20))):
            raise EOFError
        parts += part
    return bytes(parts)
