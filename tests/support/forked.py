"""Processes of ``python -m …`` that are forked from one that has imported the product already.

A fresh server spends most of its CPU on imports. So each worker of pytest has one process that
imports what a server does and then forks for each test; the child runs the module as Python does,
with the arguments, folder, environment and standard streams of the test. In a test it is like
``asyncio.create_subprocess_exec(sys.executable, "-m", …)``; with ``pytest --fresh-servers`` it is
just that.

What an interpreter or a package reads when it starts or is imported cannot be given to a fork:
:func:`is_forkable` says so, and such a process is started as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import empty, settings

from mochi_project.http.wires import WIRES
from mochi_server.config import tool_environment

from .forking import fork_for_each

ROOT = Path(__file__).parent.parent.parent

FRAMEWORKS = (
    "aiohttp",
    "anyio._backends._asyncio",
    "channels_redis.pubsub",
    "encodings.idna",
    "openai.lib.streaming.chat",
    "openai.resources.chat.completions",
    "openai.resources.embeddings",
    "openai.resources.models",
    "psycopg",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.main",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)
PRODUCT = (
    *(wire.routes_module for wire in WIRES),
    "chat.wires.socket.consumer",
    "chat.wires.socket.endpoint",
    "mochi_project.api",
    "mochi_project.checks",
    "mochi_project.http.handler",
    "mochi_project.http.metrics",
    "mochi_project.management",
    "mochi_project.runtime",
    "mochi_server.app",
    "mochi_server.chat.confirmations.state",
    "mochi_server.chat.journal.former",
    "mochi_server.core.processes",
    "mochi_server.mcp_server.http",
    "mochi_server.providers.anthropic.provider",
    "mochi_server.providers.builtin.provider",
    "mochi_server.providers.gemini.provider",
    "mochi_server.providers.ollama.provider",
    "mochi_server.providers.openai",
    "mochi_server.server.announcement",
    "mochi_server.server.http_protocol",
    "mochi_server.server.initialise",
    "mochi_server.server.socket_protocol",
    "mochi_server.sessions.storage.redis",
    "mochi_server.testmode.provider",
    "mochi_server.tools.process.loader",
    "mochi_server.tools.process.pool",
)
"""What serves requests, beside the routes. None of it reads the settings when it is imported."""

READ_AT_START = ("COVERAGE", "LANG", "LC_", "LD_", "PYTHON", "SSL_", "TZ")
"""Beginnings of the variables that the interpreter and imported packages read only once."""

LEAST_NUMBER = 400
"""The least number of a file that a fork has open and a process of its own has not."""

forks = False
"""Whether processes are forked where they can be; see the fixture ``fresh_servers``."""

forks_tools = False
"""Whether processes of tools are; see the fixture ``fresh_tools``."""

_environment_of_parent: dict[str, str] = {}
_environment_of_tools: dict[str, str] = {}
_parents: dict[str, _Parent] = {}


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without ``MOCHI_`` variables, for a process of this source tree."""
    kept = {name: value for name, value in environ.items() if not name.startswith("MOCHI_")}
    kept.pop("DJANGO_SETTINGS_MODULE", None)
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def allow_forks() -> None:
    """Fork from now on; what tests do to the environment does not reach the processes that fork."""
    global forks, forks_tools  # noqa: PLW0603
    forks = forks_tools = hasattr(os, "pidfd_open")
    _environment_of_parent.update(own_environment(os.environ))
    _environment_of_tools.update(tool_environment())


def is_forkable(command: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """Whether a fork would be as ``python *command`` with this environment."""
    return forks and command[0] == "-m" and is_read_the_same(_environment_of_parent, env)


def is_read_the_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the interpreter and imported packages read the same of these environments."""
    return all(
        one.get(name) == other.get(name)
        for name in one.keys() | other.keys()
        if name.startswith(READ_AT_START)
    )


async def start_python(
    *command: str, cwd: Path, env: Mapping[str, str], **streams: int
) -> asyncio.subprocess.Process | ForkedProcess:
    """Start ``python *command``, forked where it can be.

    The streams ``stdin``, ``stdout`` and ``stderr`` are as in ``subprocess``.
    """
    if not is_forkable(command, env):
        return await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=cwd, env=dict(env), **streams
        )
    return await ForkedProcess.start(command, cwd, env, **streams)


def stop_parents() -> None:
    """End the processes that fork, at the end of a worker."""
    while _parents:
        _parents.popitem()[1].stop()


def send_job(control: socket.socket, content: bytes, files: list[int]) -> None:
    socket.send_fds(control, [content], files)


class ForkedProcess:
    """What ``asyncio.subprocess.Process`` is, of a fork."""

    stdin: asyncio.StreamWriter | None = None
    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(status, self._read_status)

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ForkedProcess:
        job = {"command": command, "cwd": str(cwd), "env": dict(env), "forks_tools": forks_tools}
        with contextlib.ExitStack() as stack:
            pipes: dict[str, int] = {}

            def other_end(name: str, number: int, choice: int | None) -> int:
                if choice is None:
                    return number
                if choice == subprocess.DEVNULL:
                    null = os.open(os.devnull, os.O_RDWR)
                    stack.callback(os.close, null)
                    return null
                if choice != subprocess.PIPE:
                    return choice
                reading, writing = os.pipe()
                child, pipes[name] = (reading, writing) if number == 0 else (writing, reading)
                stack.callback(os.close, child)
                return child

            streams = [other_end("stdin", 0, stdin), other_end("stdout", 1, stdout)]
            is_one = stderr == subprocess.STDOUT
            streams.append(streams[1] if is_one else other_end("stderr", 2, stderr))
            try:
                process = await cls.start_by(_running_parent().control, job, streams)
            except BaseException:
                for number in pipes.values():
                    os.close(number)
                raise
        await process._open(pipes)
        return process

    @classmethod
    async def start_by(
        cls, control: socket.socket, job: Mapping[str, Any], files: list[int]
    ) -> ForkedProcess:
        """Send a job, with the umask, and its files to a process that forks."""
        umask = os.umask(0o077)
        os.umask(umask)
        # Packets, or the process id of what ends at once would have its exit code appended.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            with theirs:
                content = json.dumps({**job, "umask": umask}).encode()
                send_job(control, content, [*files, theirs.fileno()])
            ours.setblocking(False)
            answer = await asyncio.get_running_loop().sock_recv(ours, 16)
            if not answer:
                raise RuntimeError("nothing was forked; the standard error of pytest says why")
            stack.pop_all()
        return cls(int(answer), ours)

    async def _open(self, pipes: Mapping[str, int]) -> None:
        for name, number in pipes.items():
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            if name == "stdin":
                transport, _ = await self._loop.connect_write_pipe(
                    lambda protocol=protocol: protocol, os.fdopen(number, "wb", 0)
                )
                self.stdin = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            else:
                await self._loop.connect_read_pipe(
                    lambda protocol=protocol: protocol, os.fdopen(number, "rb", 0)
                )
                setattr(self, name, reader)

    def _read_status(self) -> None:
        status = self._status.recv(16)
        self._loop.remove_reader(self._status)
        self._status.close()
        if status:  # else the parent is gone, and nobody knows
            self.returncode = int(status)
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None, "the process that forks has ended"
        return self.returncode

    async def communicate(self, content: bytes | None = None) -> tuple[bytes, bytes]:
        async def read(stream: asyncio.StreamReader | None) -> bytes:
            return b"" if stream is None else await stream.read()

        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.stdin.write(content or b"")
                await self.stdin.drain()
            self.stdin.close()
        out, err = await asyncio.gather(read(self.stdout), read(self.stderr))
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """A process that forks, seen from the worker of pytest."""

    def __init__(
        self, module: str, environment: Mapping[str, str], file: int, output: int | None = None
    ) -> None:
        """Start it with a file that it inherits, and perhaps another output than this process's."""
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        numbers = (theirs.fileno(), file)
        program = f"from {module} import fork_for; job = fork_for{numbers}"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{program}\nif job is not None: job.run()"],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=numbers,
            )

    def check(self) -> None:
        """Raise an error if it has ended: a connection that is closed would not say of what."""
        if (code := self.process.poll()) is not None:
            raise RuntimeError(f"the process that forks has ended with code {code}")

    def stop(self) -> None:
        self.control.close()
        self.process.terminate()
        self.process.wait(timeout=60)


def parent_of_tools() -> socket.socket:
    """Return what reaches the process that forks for tools, which is started if need be."""
    if "tools" not in _parents:
        # Its streams are made for a pipe, as those of tools are; then its output is this one.
        reading, writing = os.pipe()
        output = os.dup(2)
        try:
            _parents["tools"] = _Parent(
                "tests.support.tool_parent", _environment_of_tools, output, writing
            )
        finally:
            for file in (reading, writing, output):
                os.close(file)
    _parents["tools"].check()
    return _parents["tools"].control


def _running_parent() -> _Parent:
    if "servers" not in _parents:
        tools = parent_of_tools().fileno()
        _parents["servers"] = _Parent("tests.support.forked", _environment_of_parent, tools)
    _parents["servers"].check()
    return _parents["servers"]


# ---- in the process that forks ---------------------------------------------------------------


@dataclass
class Job:
    """What a fork is to do, and in it the rest of its life."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    umask: int
    forks_tools: bool
    streams: list[int]
    tools: int

    def run(self) -> None:
        """Become ``python -m …``, as if nothing had been before."""
        if self.forks_tools:
            sys.modules["tests.support.forked_tools"].fork_by(socket.socket(fileno=self.tools))
        else:
            os.close(self.tools)
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        for stream in self.streams:
            os.close(stream)
        os.umask(self.umask)
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.env)
        module = self.command[1]
        sys.path[0] = str(Path.cwd())
        sys.argv = ["-m", *self.command[2:]]
        sys.orig_argv = [sys.executable, *self.command]
        settings._wrapped = empty
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        main = vars(sys.modules["__main__"])
        del main["fork_for"], main["job"]
        runpy._run_module_as_main(module)  # what Python does with -m


def fork_for(control_number: int, tools_number: int) -> Job | None:
    """Fork for each job that comes; the job in a fork, and None at the end in the parent."""
    _preload()
    # Its number is none that a server would have for something else.
    tools = fcntl.fcntl(tools_number, fcntl.F_DUPFD_CLOEXEC, LEAST_NUMBER)
    os.close(tools_number)
    received = fork_for_each(socket.socket(fileno=control_number))
    return None if received is None else Job(**received[0], streams=received[1], tools=tools)


def _preload() -> None:
    settings.configure()  # Ninja asks for its own settings, which nobody sets
    for name in (*FRAMEWORKS, *PRODUCT, "tests.support.forked_tools"):
        import_module(name)
    for routes in sys.modules["mochi_project.api"].PARTS.values():
        for _, router, _ in routes:
            import_module(router.rpartition(".")[0])
    if "mochi_project.settings" in sys.modules:
        raise RuntimeError(
            "what was imported has read the settings, which each server has of its own"
        )
    gc.collect()
    gc.freeze()
