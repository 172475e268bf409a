"""Loads a folder of tools and calls its functions, in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import JSONObject
from ..base import ToolFailed
from ..folder.package import LoadedPackage, load_package
from ..functions.python_tool import call, call_async, failure
from ..functions.results import clean
from ..loading import FolderSpec, PackageEntry
from ..progress import reporting_to
from .protocol import PROGRESS, BadFrame, encode_description, encode_result, pack

if TYPE_CHECKING:
    import asyncio

PAUSE_SECONDS = 0.05
"""Shortest time between two reports of a call."""
MAX_MESSAGE = 500


def memory_in_use() -> int:
    """Return the bytes that this process may write to, or holds, whichever is more."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = Path("/proc/self/statm").read_bytes().split()
    return max(int(pages[1]), int(pages[5])) * resource.getpagesize()


class CallReport:
    """Sends what a call reports to the server, not too often, as long as the call runs."""

    def __init__(self, number: int, send: Callable[[bytes], object]) -> None:
        self._number = number
        self._send = send
        self._lock = threading.Lock()
        self._next = 0.0
        self._pid: int | None = os.getpid()

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        text = None if message is None else clean(str(message))[:MAX_MESSAGE]
        with self._lock:
            # A forked process has the same socket.
            if self._pid != os.getpid() or time.monotonic() < self._next:
                return
            self._next = time.monotonic() + PAUSE_SECONDS
            report = {"progress": progress, "total": total, "message": text}
            self._send(pack({"id": self._number, "kind": PROGRESS, **report}))

    def close(self) -> None:
        """Send nothing any more: the answer follows."""
        with self._lock:
            self._pid = None


class Worker:
    """One loaded folder, and what is done with it."""

    def __init__(self) -> None:
        self._package: LoadedPackage | None = None
        self._working_dir: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.memory_at_start = memory_in_use()
        self.send: Callable[[bytes], object] = lambda _: None
        """Sends a frame to the server."""
        self._sink = os.dup(2)
        self._operations: dict[str, Callable[[dict[str, Any]], object]] = {
            "load": self._load,
            "call": self._call,
        }

    def answer(self, request: dict[str, Any]) -> bytes:
        """Return the frame of the answer; whatever the user's code does, there is one."""
        result: object
        try:
            self._tidy()
            result = self._operations[request["op"]](request)
        except BaseException as error:  # noqa: BLE001 - the user's own code
            result = failure(error)
        signal.setitimer(signal.ITIMER_REAL, 0)  # a call's own: it would end the next one
        _flush()
        try:
            return self._frame(request, result)
        except BadFrame as error:
            return self._frame(request, ToolFailed(f"The result is no use: {error}."))

    def _frame(self, request: dict[str, Any], result: object) -> bytes:
        size = memory_in_use() - self.memory_at_start
        return pack({"id": request["id"], "size": size, **encode_result(result)})

    def _load(self, request: dict[str, Any]) -> JSONObject:
        self._working_dir = Path(request["working_dir"])
        self._tidy()
        spec = FolderSpec(
            path=Path(request["path"]),
            entry=PackageEntry(*request["entry"]) if request["entry"] else None,
            subfolders=request["subfolders"],
            reserved=frozenset(request["reserved"]),
        )
        gc.disable()  # looking for garbage among what is imported takes an eighth of the time
        try:
            self._package = load_package(spec)
        finally:
            gc.enable()
        return encode_description(self._package.description)

    def _tidy(self) -> None:
        """Undo what an earlier call may have left: another folder, closed output."""
        _open_output(self._sink)
        if self._working_dir is not None:
            _enter(self._working_dir)

    def _call(self, request: dict[str, Any]) -> object:
        name, arguments = request["name"], request["arguments"]
        tool = self._package.functions.get(name) if self._package is not None else None
        if tool is None:
            raise ToolFailed(f"The tool {name!r} is not in its folder any more.")
        with reporting_to(CallReport(request["id"], self.send)) as report:
            try:
                if not tool.is_async:
                    return call(tool, arguments)
                return self._own_loop().run_until_complete(call_async(tool, arguments))
            finally:
                report.close()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of all calls, to which clients in the user's modules are bound."""
        if self._loop is None or self._loop.is_closed():
            import asyncio  # noqa: PLC0415 - most folders have no async tool

            self._loop = asyncio.new_event_loop()
        return self._loop


def _enter(folder: Path) -> None:
    """Make it the working directory, or raise ToolFailed: paths would mean other files."""
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
