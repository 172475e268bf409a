"""The server's side of one worker process: its start, its requests and its end.

The other side is :mod:`.worker_main` and :mod:`.worker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...config import tool_environment
from ...core.aio import BackgroundTasks, in_thread
from ...errors import JSONObject
from ...sandbox.launcher import OVER_LIMIT, SIGNALLED
from ..base import ToolFailed
from ..loading import FolderSpec
from ..progress import current_report
from .connection import WorkerConnection, WorkerGone
from .output import LineAllowance, OutputLog
from .protocol import NONSENSE, BadFrame, decode_result

if TYPE_CHECKING:
    from .confinement import ToolConfinement

_RUN_WORKER: Final = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mochi_server.tools.process.worker_main import main; main(sys.argv[1:])"
)
"""The code of a process, whose first argument is the server's ``sys.path`` as JSON.

With ``-m``, files in the working directory would hide the modules of these names. ``-c`` puts that
directory in front, too, as an empty entry: the first line removes it before anything is imported.
"""

MEMORY_CHECK_SECONDS: Final = 0.25
UNCOUNTED_BYTES: Final = 64_000_000
"""An idle interpreter with our part of the worker, generously."""
GRACE_SECONDS: Final = 0.6
"""How long an end may take before it is a kill; the worker allows itself a little less."""
GONE_SECONDS: Final = 10.0
"""Longest wait for the end of a process that was killed, perhaps while it was being started."""
SETTLE_SECONDS: Final = 0.25
"""How far apart the end of a process and the end of its socket may be."""
SANDBOX_SECONDS: Final = 2.0
"""How long after the end of the socket the sandbox around a process may end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What processes may use, and where they work."""

    workers: int = 8
    """Most calls of one folder at a time; sessions share them."""
    memory_mb: float = 1024
    """Most memory of one process on top of what an idle one needs, in 10**6 bytes."""
    start_seconds: float = 30
    """Longest start of a process, with the imports of the tools."""
    idle_seconds: float = 60
    """After that long without a call all processes of a folder but one end."""
    working_dir: Path = field(default_factory=Path.cwd)
    """Where imports and calls run, an absolute path; made if it is not there."""
    variables: Sequence[str] = ()
    """Names of environment variables that tools get beside the usual few."""
    confinement: ToolConfinement | None = None
    """The sandbox of all processes; None for none."""

    @property
    def memory(self) -> int:
        return int(self.memory_mb * 1_000_000)


class WorkerProcess:
    """A process from its start to its end; it is sent one request at a time."""

    def __init__(
        self, spec: FolderSpec, options: WorkerOptions, tasks: BackgroundTasks, lines: LineAllowance
    ) -> None:
        self._spec = spec
        self.name = spec.path.name
        """In front of what it prints, in the log."""
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._connection = WorkerConnection(on_trouble=self.kill, on_end=self._kill_unless_it_ends)
        self._end_reason: str | None = None
        """Why it has ended, or is to end; None while it may be used."""
        self._hung_up = False
        """Whether its socket was closed, and it was not seen to end soon after."""
        self._lines = lines
        self._output: OutputLog | None = None
        self._started = asyncio.Event()
        self._running = tasks.spawn(self._run(), name=f"process of tools {self.name}")
        self.size = 0
        """Bytes of memory taken since its start, as it said last."""
        self.loaded_size = 0
        """Bytes that it had taken when it had loaded its folder."""
        self.idle_since = 0.0
        """When its last call ended, by the loop's clock."""

    @property
    def alive(self) -> bool:
        return self._end_reason is None and not (
            self._started.is_set() and self._connection.has_ended()
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def request(self, op: str, **fields: Any) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the value of its answer; cancelling kills the process.

        Raises:
            InvalidArguments, ToolFailed: the answer is that there is no value.
            WorkerGone: there will be no answer.
            BadFrame: the request cannot be sent.
        """
        try:
            await self._started.wait()
            if self._end_reason is not None:
                raise WorkerGone(self._end_reason)
            answer = self._connection.send({"op": op, **fields}, current_report())
            self._memory_check = self._check_memory_later()
            try:
                value = await answer
            finally:
                self._memory_check.cancel()
            if value is None:  # how it ended is known a moment later
                await asyncio.wait({self._running}, timeout=SANDBOX_SECONDS + GONE_SECONDS)
                raise WorkerGone(self._end_reason or "the tool's process ended")
        except asyncio.CancelledError:
            self.kill("the call was given up")
            raise
        return self._value_of(value)

    async def load(self, spec: FolderSpec) -> JSONObject:
        """Load a folder and return its description, or raise ToolFailed and kill the process."""
        try:
            with anyio.fail_after(self._options.start_seconds):
                description: JSONObject = await self.request(
                    "load",
                    path=str(spec.path),
                    entry=spec.entry,
                    subfolders=spec.subfolders,
                    reserved=sorted(spec.reserved),
                    working_dir=str(self._options.working_dir),
                )
        except TimeoutError as error:
            seconds = f"{self._options.start_seconds:g}"
            raise ToolFailed(f"The tools did not load within {seconds} seconds.") from error
        except WorkerGone as error:
            raise ToolFailed(f"The tools cannot be loaded: {error}.") from error
        except ToolFailed as error:
            self.kill("it could not load the tools")
            raise ToolFailed(f"The tools cannot be loaded: {error}") from error
        self.loaded_size = self.size
        return description

    def _value_of(self, answer: Any) -> Any:  # noqa: ANN401 - JSON
        match answer:
            case {"size": int(size)}:
                self.size = size
                with contextlib.suppress(BadFrame):
                    return decode_result(answer)
        self.kill(NONSENSE)
        raise WorkerGone(NONSENSE)

    def _check_memory_later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(MEMORY_CHECK_SECONDS, self._check_memory)

    def _check_memory(self) -> None:
        """Kill it when it is too big; it cannot be trusted to say so itself."""
        self._memory_check = self._check_memory_later()
        if self._process is None or sys.platform != "linux":
            return
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_bytes().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") > self._options.memory + UNCOUNTED_BYTES:
                allowed = self._options.memory // 1_000_000
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
        if self._end_reason is None:
            self._end_reason = reason
        self._kill_group()

    def _kill_group(self) -> None:
        if self._process is not None and self._process.returncode is None:
            kill_group(self._process.pid)

    async def end(self) -> None:
        """Let it end by itself, with ``atexit``, or kill it soon; return when it is gone."""
        if self._end_reason is None:
            self._end_reason = "the tools were closed"
        self._connection.close()
        if not (await asyncio.wait({self._running}, timeout=GRACE_SECONDS))[0]:
            self.kill(self._end_reason)
            await asyncio.wait({self._running}, timeout=GONE_SECONDS)

    def _kill_unless_it_ends(self) -> None:
        """Kill the process, whose socket is closed, unless it ends by itself."""
        if self._end_reason is None:
            is_confined = self._options.confinement is not None
            asyncio.get_running_loop().call_later(
                SANDBOX_SECONDS if is_confined else SETTLE_SECONDS, self._hang_up
            )

    def _hang_up(self) -> None:
        """Kill it. Its code says whether it had ended by itself before; in a sandbox it may not."""
        self._hung_up = True
        self._kill_group()

    async def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._process = await self._start(stack)
                await self._wait_for_end(self._process)
        except OSError as error:
            self._end_reason = f"the tool's process cannot be started: {error.strerror}"
        except ToolFailed as error:
            self._end_reason = str(error)
        finally:
            self._connection.close()
            self._started.set()

    async def _start(self, stack: contextlib.ExitStack) -> asyncio.subprocess.Process:
        """Start and connect it; the stack closes what stays open as long as it runs."""
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
        kept = (link.fileno(), lifeline)
        arguments = map(str, (*kept, self._options.memory))
        argv: Sequence[str] = [sys.executable, "-c", _RUN_WORKER, _search_path(), *arguments]
        environment: Mapping[str, str] = tool_environment(self._options.variables)
        if (confinement := self._options.confinement) is not None:
            spec = await in_thread(
                confinement.spec,
                self._spec,
                working_dir=self._options.working_dir,
                environment=environment,
                keep_fds=kept,
                memory=self._options.memory + UNCOUNTED_BYTES,
            )
            confined = confinement.sandbox.command(argv, spec)
            argv, environment = confined.argv, confined.env
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=kept,
            start_new_session=True,
            env=environment,
        )

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        """Wait for its end; an answer that it gave before still counts."""
        if self._end_reason is not None:
            self.kill(self._end_reason)
        self._started.set()
        code = await process.wait()
        kill_group(process.pid)
        with anyio.move_on_after(SETTLE_SECONDS):
            await self._connection.ended.wait()
        if self._end_reason is None:
            if self._hung_up and code == -signal.SIGKILL:
                self._end_reason = "the tool's process closed its connection"
            else:
                self._end_reason = _ending(code, is_confined=self._options.confinement is not None)


def _search_path() -> str:
    """Return ``sys.path`` as JSON: tools can import everything that the server can import.

    Entries that are not paths, such as those of editable installations, stay as they are.
    """
    paths = (Path(path) for path in sys.path)
    return json.dumps([str(path.absolute() if path.exists() else path) for path in paths])


def kill_group(pid: int) -> None:
    """Kill what is left of the group; macOS says EPERM when only zombies are."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    """Return how a process has ended: ``ended with exit code 1``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was killed by signal {name}"


def _ending(code: int, *, is_confined: bool) -> str:
    if is_confined and code == OVER_LIMIT:
        return "the tool's process went over a limit of its sandbox, as the log says"
    if is_confined and code > SIGNALLED:
        code = SIGNALLED - code
    return f"the tool's process {how_it_ended(code)}"
