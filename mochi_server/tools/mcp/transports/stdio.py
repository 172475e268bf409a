"""The process of an MCP server and its standard streams, within limits.

The SDK's own transport reads lines of any length and sends stderr to the terminal, and a server
that does not read its input outlives us. The protocol is the SDK's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic_core import from_json

from ....core.aio import pipe_end
from ....core.utf8 import valid_utf8
from ...process.worker_process import how_it_ended, kill_group
from .limits import (
    EDGE,
    MAX_MESSAGE,
    TOO_LARGE,
    LimitedReadStream,
    Streams,
    failed_response,
    is_too_large,
)
from .log import LOG_LINE, ServerLog, StdioCommand

READ_BYTES = 65_536
END_SECONDS = 1.0
"""How long a server may take to end when its input is closed, and again after SIGTERM."""
GONE_SECONDS = 10.0
"""Longest wait for the end of a server that was killed."""
PAUSE_SECONDS = 0.005
"""Pause after a piece of stderr, or of what is no message: floods must not hold up the loop."""
SETTLE_SECONDS = 1.0
"""How far apart the end of a process and the end of its output may be."""
SHOWN_RUBBISH = 200
"""Characters of a line that is no message."""
NOTED_RUBBISH = 20
"""Lines that are no message, of one connection, which the log shows."""
NO_MESSAGE = "the answer is no message of MCP"


@asynccontextmanager
async def stdio_transport(
    command: StdioCommand, log: ServerLog, on_end: Callable[[str], None]
) -> AsyncGenerator[Streams, None]:
    """Start a server and exchange messages with it; nothing that it started is left at the end.

    Args:
        command: What is started.
        log: Gets the lines of stderr, and the beginning of what is no message on stdout.
        on_end: Is called with the reason when the process ends, or closes its output.

    Raises:
        OSError: It cannot be started.
    """
    process = _ServerProcess(log, on_end)
    await process.start(command)
    received, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, sending = anyio.create_memory_object_stream[SessionMessage](0)
    limited = LimitedReadStream(read_stream, on_flood=log.note_flood, on_end=process.note_end)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(process.read_messages, received)
            group.start_soon(process.write_messages, sending)
            group.start_soon(process.read_stderr)
            group.start_soon(process.wait)
            try:
                yield limited, write_stream
            finally:
                read_stream.close()
                write_stream.close()
                with anyio.CancelScope(shield=True):
                    await process.stop()
                group.cancel_scope.cancel()
    finally:
        process.close()
        for stream in (received, sending):
            stream.close()


class _ServerProcess:
    """A server's process, in a group of its own, which ends with this process."""

    def __init__(self, log: ServerLog, on_end: Callable[[str], None]) -> None:
        self._log = log
        self._on_end: Callable[[str], None] | None = on_end
        self._open = contextlib.ExitStack()
        self._rubbish = 0
        self._has_ended, self._is_read = asyncio.Event(), asyncio.Event()
        self._stderr_is_read = asyncio.Event()
        self._process: asyncio.subprocess.Process
        self._stdin: asyncio.StreamWriter
        self._stdout: asyncio.StreamReader
        self._stderr: asyncio.StreamReader

    async def start(self, command: StdioCommand) -> None:
        """Start it. The pipes are not asyncio's own, whose ``wait()`` waits for their heirs."""
        with contextlib.ExitStack() as theirs:
            try:
                (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = (
                    os.pipe(),
                    os.pipe(),
                    os.pipe(),
                )
                lifeline, held = os.pipe()
                for descriptor in (stdin, stdout, stderr, lifeline):
                    theirs.callback(os.close, descriptor)
                self._open.callback(os.close, held)
                self._stdin = await self._writer(to_stdin)
                self._stdout = await self._reader(from_stdout)
                self._stderr = await self._reader(from_stderr)
                self._process = await asyncio.create_subprocess_exec(
                    *command.argv,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env=dict(command.env),
                    cwd=command.cwd,
                    pass_fds=(lifeline,),
                    start_new_session=True,
                )
                _kill_with_us(lifeline, self._process.pid)
            except FileNotFoundError as error:
                self.close()
                error.filename = error.filename or command.argv[0]  # uvloop does not say it
                raise
            except BaseException:
                self.close()
                raise

    async def _reader(self, descriptor: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=READ_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe_end(descriptor, "rb")
        )
        self._open.callback(transport.close)
        return reader

    async def _writer(self, descriptor: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, pipe_end(descriptor, "wb")
        )
        self._open.callback(transport.close)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def read_messages(
        self, received: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        async with received:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for message in self._messages():
                    await received.send(message)
            await self._settle()

    async def write_messages(self, sending: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with sending:
            async for item in sending:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                with contextlib.suppress(OSError):  # it has ended, which its output tells
                    self._stdin.write(text.encode() + b"\n")
                    await self._stdin.drain()

    async def _messages(self) -> AsyncGenerator[SessionMessage, None]:
        """Yield what it writes to stdout, and errors for answers that cannot be used."""
        lines = _LineBuffer()
        while data := await self._stdout.read(READ_BYTES):
            rubbish = lines.is_skipping
            for line in lines.feed(data):
                if (message := self._message(line)) is not None:
                    yield message
                else:
                    rubbish = True
            if rubbish:
                await asyncio.sleep(PAUSE_SECONDS)

    def _message(self, line: bytes | _LongLine) -> SessionMessage | None:
        if isinstance(line, _LongLine):
            self._log.note(f"stdout: a message of {line.size:,} bytes was dropped")
            return failed_response(line.head, line.tail, TOO_LARGE)
        if not line.strip():
            return None
        if is_too_large(line):
            self._log.note(f"stdout: a message of {len(line):,} bytes was dropped")
            return failed_response(line[:EDGE], line[-EDGE:], TOO_LARGE)
        try:
            message = jsonrpc_message_adapter.validate_python(
                from_json(valid_utf8(line)), by_name=False
            )
            return SessionMessage(message)
        except ValueError:
            self._rubbish += 1
            if self._rubbish <= NOTED_RUBBISH:
                text = line[: 4 * LOG_LINE].decode("utf-8", "replace")
                shown = self._log.secrets.redacted(text, SHOWN_RUBBISH)
                self._log.note(f"stdout: no message: {shown}")
            return failed_response(line[:EDGE], line[-EDGE:], NO_MESSAGE)

    async def read_stderr(self) -> None:
        while data := await self._stderr.read(READ_BYTES):
            self._log.feed(data)
            await asyncio.sleep(PAUSE_SECONDS)
        self._stderr_is_read.set()

    async def wait(self) -> None:
        """Wait for its end; what it has started ends with it, and what it wrote is still read."""
        code = await self._process.wait()
        kill_group(self._process.pid)
        with anyio.move_on_after(SETTLE_SECONDS / 2):  # "settle" waits longer
            await self._stderr_is_read.wait()
        self._has_ended.set()
        with anyio.move_on_after(SETTLE_SECONDS):
            await self._is_read.wait()
        reason = f"its process {how_it_ended(code)}"
        last = self._log.last if code else ""
        self.note_end(f"{reason} ({last[:SHOWN_RUBBISH]})" if last else reason)

    async def _settle(self) -> None:
        """Note that its output has ended, unless the process ends, which says more."""
        self._is_read.set()
        with anyio.move_on_after(SETTLE_SECONDS):
            await self._has_ended.wait()
        if not self._has_ended.is_set():
            self.note_end("it closed its output")

    def note_end(self, reason: str) -> None:
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end(reason)

    async def stop(self) -> None:
        """End it: close its input, then SIGTERM, then SIGKILL."""
        self._on_end = None
        self._stdin.close()
        if not await self._ends(END_SECONDS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)
            await self._ends(END_SECONDS)
        kill_group(self._process.pid)
        await self._ends(GONE_SECONDS)

    async def _ends(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._process.wait()
        return self._process.returncode is not None

    def close(self) -> None:
        self._log.flush()
        self._open.close()


def _kill_with_us(lifeline: int, group: int) -> None:
    """Let the kernel kill a process group when we end, however we do.

    The server holds the other end of a pipe, unknowingly; see ``process.worker_main``. Elsewhere
    than on Linux the server only sees that its input ends.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


@dataclass(frozen=True, slots=True)
class _LongLine:
    head: bytes
    tail: bytes
    size: int


class _LineBuffer:
    """Divides what comes into lines; of those that are too long, only the ends are kept."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""

    @property
    def is_skipping(self) -> bool:
        return self._size > MAX_MESSAGE

    def feed(self, data: bytes) -> Iterator[bytes | _LongLine]:
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._line()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self.is_skipping:
            if not self._head:
                self._head = b"".join(self._pieces)[:EDGE]
            self._pieces = [b"".join(self._pieces)[-EDGE:]]

    def _line(self) -> bytes | _LongLine:
        content, size, head = b"".join(self._pieces), self._size, self._head
        self._pieces, self._size, self._head = [], 0, b""
        return content if size <= MAX_MESSAGE else _LongLine(head, content, size)
