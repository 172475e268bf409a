"""Run programs with limits on their time and output, and end what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from ..core.aio import pipe_end
from ..sandbox.launcher import end_children

_SET_CHILD_SUBREAPER = 36
_LAST_OUTPUT_SECONDS = 0.5
"""Longest wait for output after the end; a process that left the group may hold the pipe."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What became of a program."""

    exit_code: int | None
    """Negative: the signal that ended it. None: it took too long."""
    stdout: str
    stderr: str


class CommandRunner:
    """Runs programs; at the end of the last one that runs, none of their processes is left.

    Args:
        adopts: Whether what programs leave behind becomes a child of this process, and all children
            of this process end with the last program: only for a process that starts no others.
            Else the process group of each program ends with it, and what has left it goes on.
    """

    def __init__(self, *, adopts: bool = False) -> None:
        self._adopts = adopts and sys.platform == "linux"
        self._running = 0
        if self._adopts:
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    async def run(
        self, command: Sequence[str], *, folder: Path, seconds: float, most_bytes: int
    ) -> CommandResult:
        """Run a program without input, and return its result.

        Its process group is killed at the end, also after a cancellation.

        Args:
            command: The program and its arguments.
            folder: Its working directory.
            seconds: Longest time.
            most_bytes: Most bytes that are kept of each output: half from its beginning, half from
                its end.

        Raises:
            OSError: It cannot be started.
        """
        output, errors = _Output(most_bytes), _Output(most_bytes)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._counted())
            process = await _start(command, folder, output, errors, stack)
            exit_code = None
            try:
                with anyio.move_on_after(seconds):
                    exit_code = await process.wait()
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                with anyio.CancelScope(shield=True):
                    await process.wait()
            with anyio.move_on_after(_LAST_OUTPUT_SECONDS):
                await output.ended.wait()
                await errors.ended.wait()
        return CommandResult(exit_code=exit_code, stdout=output.text(), stderr=errors.text())

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._adopts and not self._running:
                with contextlib.suppress(PermissionError):  # a process of another user
                    end_children()


async def _start(
    command: Sequence[str],
    folder: Path,
    output: _Output,
    errors: _Output,
    stack: contextlib.AsyncExitStack,
) -> asyncio.subprocess.Process:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as ends:
        writers = []
        for reader in (output, errors):
            read, write = os.pipe()
            writers.append(ends.enter_context(_closing(write)))
            # Pipes of our own: asyncio's would be waited for until the last process closes them.
            transport, _ = await loop.connect_read_pipe(
                lambda reader=reader: reader,  # type: ignore[misc]
                pipe_end(read, "rb"),
            )
            stack.callback(transport.close)
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writers[0],
            stderr=writers[1],
            start_new_session=True,
        )


@contextlib.contextmanager
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


class _Output(asyncio.Protocol):
    """The beginning and the end of what a process writes."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.ended.set()

    def text(self) -> str:
        tail = self._tail[-self._half :]
        left_out = self._size - len(self._head) - len(tail)
        if not left_out:
            return (self._head + tail).decode("utf-8", "replace")
        note = f"\n[{left_out:,} bytes of output were left out here.]\n"
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
