"""Runs calls: within their time, with a result or a clear failure, and keeps count."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from ..errors import InvalidRequest, JSONObject, RunInterrupted, StorageError, ToolExecutionFailed
from ..protocol.events import Event
from ..protocol.messages import now
from .base import (
    InvalidArguments,
    Tool,
    ToolBegun,
    ToolContext,
    ToolFailed,
    ToolFile,
    ToolOutput,
    ToolPaused,
    ToolStep,
)

if TYPE_CHECKING:
    from ..protocol.attachments import Attachment
    from ..sessions.attachments import AttachmentStore

logger = logging.getLogger(__name__)

HISTORY = 100
SAMPLES = 1000
EMPTY = "(The tool returned no text.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionResult:
    """The result of a call, or why it has none."""

    tool_name: str
    success: bool
    result: str | None = None
    """What the tool returned, perhaps cut; null when it failed."""
    error_message: str | None = None
    execution_time: float = 0.0
    code: str | None = None
    attachments: Sequence[Attachment] = ()
    """Files that the tool returned, kept with the person's session."""

    @classmethod
    def failure(
        cls, tool_name: str, reason: str, *, code: str | None = None, execution_time: float = 0.0
    ) -> ToolExecutionResult:
        return cls(
            tool_name=tool_name,
            success=False,
            error_message=reason,
            execution_time=execution_time,
            code=code or ToolExecutionFailed.code,
        )

    def for_model(self) -> str:
        """Return what the model reads: no empty text, and failures begin with ``Error:``."""
        if not self.success:
            return f"Error: {self.error_message}"
        return self.result if self.result and self.result.strip() else EMPTY


@dataclass(slots=True)
class _ToolStatistics:
    count: int = 0
    failures: int = 0
    seconds: float = 0.0
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, result: ToolExecutionResult) -> None:
        self.count += 1
        if not result.success:
            self.failures += 1
        self.seconds += result.execution_time
        self.latest.append(result.execution_time)

    def as_json(self) -> JSONObject:
        ordered = sorted(self.latest)
        return {
            "count": self.count,
            "failures": self.failures,
            "mean_seconds": round(self.seconds / self.count, 6),
            "p95_seconds": round(ordered[math.ceil(len(ordered) * 0.95) - 1], 6),
        }


class ToolExecutionService:
    """Executes calls one at a time or side by side; never raises because of a tool."""

    result_characters = 100_000
    """Longest result; the rest is cut."""
    max_calls_per_reply = 100
    """Most calls of one reply that may run; the rest is refused."""

    def __init__(
        self, *, in_order: bool = False, attachments: AttachmentStore | None = None
    ) -> None:
        self._is_in_order = in_order
        """Whether results of a session come in the order of its calls, as in test mode."""
        self._attachments = attachments
        """Where files that tools return are kept; None: nowhere."""
        self._latest_ended: dict[str, asyncio.Event] = {}
        """By session with a running call: is set when the latest of its calls has ended."""
        self._history: deque[JSONObject] = deque(maxlen=HISTORY)
        self._counts: dict[str, _ToolStatistics] = {}
        self._alone: dict[tuple[str, str], asyncio.Lock] = {}

    def execute(
        self, tool: Tool, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        """Yield the tool's events, and exactly one result, last.

        Its time begins when it runs: calls may have to wait for a process, and sequential ones
        for their turn. Closing or cancelling gives the call up.

        Raises:
            RunInterrupted: another process has taken the run before the tool could begin.
        """
        steps = self._execute(tool, arguments, context)
        return self._in_order(steps, context.session_id) if self._is_in_order else steps

    async def _in_order(
        self, steps: AsyncGenerator[Event | ToolExecutionResult, None], session_id: str
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        """Hold the result back until those of the session's earlier calls are there."""
        earlier, ended = self._latest_ended.get(session_id), asyncio.Event()
        self._latest_ended[session_id] = ended
        try:
            async with aclosing(steps):
                async for step in steps:
                    if isinstance(step, ToolExecutionResult) and earlier is not None:
                        await earlier.wait()
                    yield step
        finally:
            ended.set()
            if self._latest_ended.get(session_id) is ended:
                del self._latest_ended[session_id]

    async def _execute(
        self, tool: Tool, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        started, began = now(), time.perf_counter()
        output: ToolOutput | None = None
        reason, code = "", ToolExecutionFailed.code
        try:
            async with self._turn(tool), aclosing(tool.run(arguments, context)) as steps:
                started, began, deadline = now(), time.perf_counter(), None
                while output is None:
                    step = await _next(steps, deadline)
                    if isinstance(step, ToolBegun | ToolPaused):
                        await context.check_held()
                        began = time.perf_counter()
                        deadline = _deadline(tool, step, began)
                    elif isinstance(step, ToolOutput):
                        output = step
                    else:
                        yield step
        except InvalidArguments as error:  # only the function itself could tell
            reason, code = f"invalid arguments: {error}", InvalidRequest.code
        except ToolFailed as error:
            reason = str(error) or "it failed without saying why."
        except _DeadlinePassed:
            reason = f"it took longer than {_limit(tool)} and was given up."
            logger.warning("The tool %s failed: %s", tool.name, reason)
        except RunInterrupted:
            raise
        except Exception as error:
            logger.exception("Tool %s failed in an unforeseen way", tool.name)
            reason = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        if output is None:
            text = cut(reason, self.result_characters)
            result = ToolExecutionResult.failure(tool.name, text, code=code, execution_time=seconds)
        else:
            result = await self._success(tool.name, output, context, seconds)
        self._remember(result, context.session_id, started)
        yield result

    async def _success(
        self, name: str, output: ToolOutput, context: ToolContext, seconds: float
    ) -> ToolExecutionResult:
        return ToolExecutionResult(
            tool_name=name,
            success=True,
            result=cut(output.content, self.result_characters),
            execution_time=seconds,
            attachments=await self._keep(output.files, context),
        )

    async def _keep(self, files: Sequence[ToolFile], context: ToolContext) -> Sequence[Attachment]:
        """Keep files with the person's session, as far as they can be stored."""
        kept: list[Attachment] = []
        if self._attachments is None:
            return kept
        session_id = context.conversation_id
        try:
            for file in files:
                kept.append(  # noqa: PERF401 - those before a failure stay
                    await self._attachments.put(
                        session_id, file.content, file.media_type, file.name
                    )
                )
        except StorageError as error:
            logger.warning("Files that a tool returned are lost: %s", error.message)
        return kept

    def history(self) -> list[JSONObject]:
        """Return the last executions, latest first, without what they returned.

        ``{"tool_name", "session_id", "started_at", "execution_time", "success", "error_message"}``
        each; times in seconds.
        """
        return list(reversed(self._history))

    def statistics(self) -> JSONObject:
        """Return by tool ``{"count", "failures", "mean_seconds", "p95_seconds"}``.

        The percentile is of the last thousand executions.
        """
        return {name: self._counts[name].as_json() for name in sorted(self._counts)}

    def _turn(self, tool: Tool) -> AbstractAsyncContextManager[object]:
        if not tool.sequential:
            return nullcontext()
        return self._alone.setdefault((tool.source, tool.name), asyncio.Lock())

    def _remember(self, result: ToolExecutionResult, session_id: str, started: str) -> None:
        self._counts.setdefault(result.tool_name, _ToolStatistics()).add(result)
        self._history.append(
            {
                "tool_name": result.tool_name,
                "session_id": session_id,
                "started_at": started,
                "execution_time": round(result.execution_time, 6),
                "success": result.success,
                "error_message": result.error_message,
            }
        )


def cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… (cut here; {len(text) - most:,} more characters)"


def _deadline(tool: Tool, step: ToolBegun | ToolPaused, now: float) -> float | None:
    if tool.timeout is None or isinstance(step, ToolPaused):
        return None
    return now + tool.timeout


def _limit(tool: Tool) -> str:
    return "1 second" if tool.timeout == 1 else f"{tool.timeout:g} seconds"


class _DeadlinePassed(Exception):
    """The time of a call is over; a TimeoutError might be one of the tool's own."""


async def _next(steps: AsyncGenerator[ToolStep, None], deadline: float | None) -> ToolStep:
    seconds = math.inf if deadline is None else max(deadline - time.perf_counter(), 0)
    with anyio.move_on_after(seconds):
        if (step := await anext(steps, None)) is None:
            raise ToolFailed("it ended without a result.")
        return step
    raise _DeadlinePassed
