"""One process of a folder of tools, as the server sees it: one request at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from ...config import tool_environment
from ...core.aio import BackgroundTasks
from .connection import ChildConnection
from .output import LineAllowance, OutputLog
from .protocol import NONSENSE, BadFrame, decode_result

_RUN_WORKER: Final = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mochi_server.tools.process.entry import main; main(sys.argv[1:])"
)
"""``-m`` would look for modules in the working directory first; tools import what we could.

``-c`` puts that directory in front as well, as an empty text, until the second line.
"""

MEMORY_CHECK_SECONDS: Final = 0.25
"""How often the memory of a busy process is checked."""
UNCOUNTED_BYTES: Final = 64_000_000
"""An idle interpreter with our part of the worker, generously."""
GRACE_SECONDS: Final = 0.6
"""How long an end may take before it is a kill; the worker allows itself a little less."""
SETTLE_SECONDS: Final = 0.25
"""How far apart the end of a process and the end of its socket may be."""


class ChildGone(Exception):
    """The process ended, or had to be ended; the text says how, for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """What a process may use, and where it works."""

    memory: int
    """Bytes on top of what an idle one needs."""
    start_seconds: float
    """Longest start, with the imports of the tools."""
    working_dir: Path
    """Where imports and calls run."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that it gets beside the usual few."""


class Child:
    """A process from its start to its end; it is sent one request at a time."""

    def __init__(
        self, name: str, limits: ChildLimits, tasks: BackgroundTasks, lines: LineAllowance
    ) -> None:
        self.name = name
        """In front of what it prints, in the log."""
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._connection = ChildConnection(on_trouble=self.kill, on_end=self._settle)
        self._reason: str | None = None
        self._lines = lines
        self._output: OutputLog | None = None
        self._started = asyncio.Event()
        self._life = tasks.spawn(self._live(), name=f"process of tools {name}")
        self.size = 0
        """Bytes of memory taken since its start, as it said last."""

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self._reason is None and not (
            self._started.is_set() and self._connection.has_ended()
        )

    @property
    def pid(self) -> int | None:
        """Its process id and that of its group, once it was started."""
        return self._process.pid if self._process is not None else None

    async def request(self, op: str, **fields: Any) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the value of its answer; cancelling kills the process.

        Raises:
            InvalidArguments, ToolFailed: the answer is that there is no value.
            ChildGone: there will be no answer.
            BadFrame: the request cannot be sent.
        """
        try:
            await self._started.wait()
            if self._reason is not None:
                raise ChildGone(self._reason)
            answer = self._connection.send({"op": op, **fields})
            while not (await asyncio.wait({answer}, timeout=MEMORY_CHECK_SECONDS))[0]:
                self._check_memory()
            if answer.result() is None:  # how it ended is known a moment later
                await asyncio.wait({self._life}, timeout=GRACE_SECONDS)
                raise ChildGone(self._reason or "the tool's process ended")
        except asyncio.CancelledError:
            self.kill("the call was given up")
            raise
        return self._value_of(answer.result())

    def _value_of(self, answer: Any) -> Any:  # noqa: ANN401 - JSON
        match answer:
            case {"size": int(size)}:
                self.size = size
                with contextlib.suppress(BadFrame):
                    return decode_result(answer)
        self.kill(NONSENSE)
        raise ChildGone(NONSENSE)

    def _check_memory(self) -> None:
        """Kill it when it is too big; it cannot be trusted to say so itself."""
        if self._process is None or sys.platform != "linux":
            return
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_bytes().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") > self._limits.memory + UNCOUNTED_BYTES:
                allowed = self._limits.memory // 1_000_000
                self.kill(f"the tool used more than {allowed} MB of memory")

    @contextlib.contextmanager
    def speaking_as(self, name: str) -> Iterator[None]:
        """Log what it prints meanwhile under this name, also a line without an end."""
        before, self.name = self.name, name
        try:
            yield
        finally:
            if self._output is not None:
                self._output.drain()
            self.name = before

    def kill(self, reason: str) -> None:
        """Kill its process group; whoever waits for an answer gets the reason."""
        if self._reason is None:
            self._reason = reason
        if self._process is not None and self._process.returncode is None:
            _kill_group(self._process.pid)

    async def end(self) -> None:
        """Let it end by itself, with ``atexit``, or kill it soon; return when it is gone."""
        if self._reason is None:
            self._reason = "the tools were closed"
        self._connection.close()
        if not (await asyncio.wait({self._life}, timeout=GRACE_SECONDS))[0]:
            self.kill(self._reason)
            await asyncio.wait({self._life}, timeout=GRACE_SECONDS)

    def _settle(self) -> None:
        """The socket was closed: the process is ending, or has to."""
        if self._reason is None:
            asyncio.get_running_loop().call_later(
                SETTLE_SECONDS, self.kill, "the tool's process closed its connection"
            )

    async def _live(self) -> None:
        """Start the process, wait for its end and leave nothing of it."""
        try:
            with contextlib.ExitStack() as stack:
                self._process = await self._start(stack)
                await self._wait_for_end(self._process)
        except OSError as error:
            self._reason = f"the tool's process cannot be started: {error.strerror}"
        finally:
            self._connection.close()
            self._started.set()

    async def _start(self, stack: contextlib.ExitStack) -> asyncio.subprocess.Process:
        """Return the connected process; the stack closes what stays open as long as it runs."""
        lifeline, held = os.pipe()
        stack.callback(os.close, held)
        with contextlib.ExitStack() as theirs:
            theirs.callback(os.close, lifeline)
            output = self._output = OutputLog(lambda: self.name, self._lines)
            theirs.callback(os.close, output.sink)
            stack.callback(output.close)
            ours, link = socket.socketpair()
            theirs.callback(link.close)
            await self._connection.connect(ours)
            return await self._spawn(link, lifeline, output.sink)

    async def _spawn(
        self, link: socket.socket, lifeline: int, sink: int
    ) -> asyncio.subprocess.Process:
        arguments = [link.fileno(), lifeline, self._limits.memory]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _RUN_WORKER,
            _search_path(),
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=(link.fileno(), lifeline),
            start_new_session=True,
            env=tool_environment(self._limits.variables),
        )

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        """Wait for its end; an answer that it gave before still counts."""
        if self._reason is not None:
            self.kill(self._reason)
        self._started.set()
        code = await process.wait()
        _kill_group(process.pid)
        with anyio.move_on_after(SETTLE_SECONDS):
            await self._connection.ended.wait()
        if self._reason is None:
            self._reason = _ending(code)


def _search_path() -> str:
    """``sys.path`` as JSON: tools can import in a process what they can import in a thread.

    Entries that are no paths, as installers make them, stay as they are.
    """
    paths = (Path(path) for path in sys.path)
    return json.dumps([str(path.absolute() if path.exists() else path) for path in paths])


def _kill_group(pid: int) -> None:
    """Kill what is left of the group; macOS says EPERM when only zombies are."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _ending(code: int) -> str:
    """Say how a process ended, from its return code."""
    if code >= 0:
        return f"the tool's process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"the tool's process was killed by signal {name}"
