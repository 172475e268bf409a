"""The process in which the tools of one folder run: started by the server, one call at a time.

:mod:`.child` starts it: :func:`main` with two open file descriptors (a socket, and a pipe that ends
with the server) and a number of bytes. What it is asked and answers is in :mod:`.wire`. It ends
when the server closes the socket, and is killed with all that it started when the server dies,
whatever it is doing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import io
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import JSONObject
from ..base import FolderSpec, ToolFailed
from ..functions.calling import Outcome, attempt, call, call_async, failed
from .protocol import LENGTH_BYTES, BadFrame, describe, length_of, pack, unpack

if TYPE_CHECKING:
    import asyncio

    from ..folder.package import LoadedPackage

EXIT_SECONDS = 0.4
"""How long what runs at exit (``atexit``, threads) may take."""


def main(arguments: list[str]) -> None:
    """Serve until the server closes the socket; ``[SOCKET, LIFELINE, MEMORY]``."""
    descriptor, lifeline, memory = (int(argument) for argument in arguments)
    _close_all_but({0, 1, 2, descriptor, lifeline})
    _die_with_the_server(lifeline)
    _import_packages()
    _limit(memory)
    _prepare_output()
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
    link = socket.socket(fileno=descriptor)
    link.settimeout(None)
    requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    threading.Thread(target=_read, args=(link, requests), daemon=True, name="mochi-wire").start()
    worker = Worker()
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


def _import_packages() -> None:
    """Import what loads folders, without the HTTP client that comes with ``ollama``.

    That would be a third of a start. Its package is taken away again, for tools that use it.
    """
    found = None if "ollama" in sys.modules else find_spec("ollama")
    if found is not None:
        bare = sys.modules["ollama"] = ModuleType("ollama")
        bare.__path__ = found.submodule_search_locations or []
    import_module("ollama._utils")
    import_module("mochi_server.tools.folder.package")
    if found is not None:
        del sys.modules["ollama"]


def _limit(memory: int) -> None:
    """Bound what this process may allocate; leave no core files in the user's folder."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    # Not RLIMIT_AS: libraries reserve address space by the gigabyte that they never use.
    limit = taken() + memory
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(OSError):  # when memory runs out: us, not the server
        Path("/proc/self/oom_score_adj").write_text("500")


def taken() -> int:
    """Bytes of memory of this process: what it may write to, or holds, whichever is more."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = Path("/proc/self/statm").read_bytes().split()
    return max(int(pages[1]), int(pages[5])) * resource.getpagesize()


def _prepare_output() -> None:
    """Lines go out when they are complete, and no text is refused."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _read(link: socket.socket, requests: SimpleQueue[dict[str, Any] | None]) -> None:
    """Hand requests to the main thread, then its end; make sure that it comes."""
    with contextlib.suppress(OSError, EOFError, BadFrame):
        while True:
            requests.put(unpack(_exactly(link, length_of(_exactly(link, LENGTH_BYTES)))))
    requests.put(None)
    threading.Event().wait(EXIT_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _exactly(link: socket.socket, count: int) -> bytes:
    """That many bytes.

    Raises:
        EOFError: the socket was closed before.
    """
    parts = bytearray()
    while len(parts) < count:
        if not (part := link.recv(min(count - len(parts), 1 << 20))):
            raise EOFError
        parts += part
    return bytes(parts)


class Worker:
    """One loaded package and what is asked of it."""

    def __init__(self) -> None:
        self._package: LoadedPackage | None = None
        self._working_dir: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._at_start = taken()
        self._sink = os.dup(2)
        """Where output goes, for tools that close theirs."""
        self._operations: dict[str, Callable[[dict[str, Any]], Outcome]] = {
            "load": self._load,
            "validate": self._validate,
            "call": self._call,
        }

    def answer(self, request: dict[str, Any]) -> bytes:
        """The frame of the answer; whatever the user's code does, there is one."""
        try:
            self._tidy()
            outcome = self._operations[request["op"]](request)
        except BaseException as error:  # noqa: BLE001 - the user's own code
            outcome = failed(error)
        signal.setitimer(signal.ITIMER_REAL, 0)  # a call's own: it would end the next one
        _flush()
        try:
            return pack(self._frame(request, outcome))
        except BadFrame as error:
            return pack(self._frame(request, failed(ToolFailed(f"The result is no use: {error}."))))

    def _frame(self, request: dict[str, Any], outcome: Outcome) -> JSONObject:
        return {
            "id": request["id"],
            "kind": outcome.kind,
            "value": outcome.value,
            "text": outcome.text,
            "trace": outcome.trace,
            "size": taken() - self._at_start,
        }

    def _load(self, request: dict[str, Any]) -> Outcome:
        from ..folder.package import load_package  # noqa: PLC0415 - imported with care before

        self._working_dir = Path(request["working_dir"])
        self._tidy()
        spec = FolderSpec(
            path=Path(request["path"]),
            subfolders=request["subfolders"],
            taken=frozenset(request["taken"]),
        )
        gc.disable()  # looking for garbage among what is imported takes an eighth of the time
        try:
            self._package = load_package(spec, generation=request["generation"])
        finally:
            gc.enable()
        return Outcome(kind="done", value=describe(self._package.description))

    def _tidy(self) -> None:
        """Undo what an earlier call may have left: another folder, closed output."""
        _open_output(self._sink)
        if self._working_dir is not None:
            _enter(self._working_dir)

    def _tool(self, name: str) -> Any:  # noqa: ANN401 - a PythonTool
        tool = self._package.functions.get(name) if self._package is not None else None
        if tool is None:
            raise ToolFailed(f"The tool {name!r} is not in its folder any more.")
        return tool

    def _validate(self, request: dict[str, Any]) -> Outcome:
        tool = self._tool(request["name"])
        return attempt(lambda: tool.validate(request["arguments"]))

    def _call(self, request: dict[str, Any]) -> Outcome:
        tool = self._tool(request["name"])
        if not tool.is_async:
            return call(tool, request["arguments"])
        return self._own_loop().run_until_complete(call_async(tool, request["arguments"]))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """The same for all calls: clients that the user's modules keep are bound to it."""
        if self._loop is None or self._loop.is_closed():
            import asyncio  # noqa: PLC0415 - most folders have no async tool

            self._loop = asyncio.new_event_loop()
        return self._loop


def _enter(folder: Path) -> None:
    """Make it the working directory; make it if it is not there.

    Raises:
        ToolFailed: that cannot be. A path of the tool's would mean another file elsewhere.
    """
    try:
        try:
            os.chdir(folder)
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
    except OSError as error:
        raise ToolFailed(
            f"The working directory {folder} of the tools cannot be entered: {error.strerror}."
        ) from error


def _open_output(sink: int) -> None:
    """Open standard output and error again where they were closed: the next tool may print."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(sink, number)
        if getattr(getattr(sys, name, None), "closed", False):
            with contextlib.suppress(OSError):
                setattr(sys, name, _output(number))


def _output(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user may have put anything there, or closed it
            stream.flush()
