"""Runs calls: within their time, with a result or a clear failure, and keeps count."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from ..errors import JSONObject, ToolExecutionFailed
from ..protocol.events import Event
from ..protocol.messages import now
from .base import InvalidArguments, Tool, ToolBegun, ToolContext, ToolFailed, ToolOutput

logger = logging.getLogger(__name__)

HISTORY = 100
"""Executions that are remembered one by one."""
SAMPLES = 1000
"""Latest durations of a tool, from which its percentile is taken."""
EMPTY = "(The tool returned no text.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionResult:
    """What came of a call."""

    tool_name: str
    success: bool
    result: str | None = None
    """What the tool returned, perhaps cut; null when it failed."""
    error_message: str | None = None
    execution_time: float = 0.0
    """Seconds."""
    code: str | None = None
    """The name of the failure."""

    @classmethod
    def failure(
        cls, tool_name: str, reason: str, *, code: str | None = None, execution_time: float = 0.0
    ) -> ToolExecutionResult:
        """A call that has no result."""
        return cls(
            tool_name=tool_name,
            success=False,
            error_message=reason,
            execution_time=execution_time,
            code=code or ToolExecutionFailed.code,
        )

    def for_model(self) -> str:
        """What the model reads: never an empty text, and failures begin with ``Error:``."""
        if not self.success:
            return f"Error: {self.error_message}"
        return self.result if self.result and self.result.strip() else EMPTY


@dataclass(slots=True)
class _Count:
    count: int = 0
    failures: int = 0
    seconds: float = 0.0
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, result: ToolExecutionResult) -> None:
        self.count += 1
        self.failures += not result.success
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

    def __init__(
        self,
        *,
        result_characters: int = 100_000,
        max_calls_per_reply: int = 100,
        in_order: bool = False,
    ) -> None:
        self.result_characters = result_characters
        """Longest result; the rest is cut."""
        self.max_calls_per_reply = max_calls_per_reply
        """Most calls of one reply that may run; the rest is refused."""
        self._is_in_order = in_order
        """Whether results of a session come in the order of its calls, as in test mode."""
        self._latest: dict[str, asyncio.Event] = {}
        """By session, whether its latest call has ended; for as long as it has not."""
        self._history: deque[JSONObject] = deque(maxlen=HISTORY)
        self._counts: dict[str, _Count] = {}
        self._alone: dict[tuple[str, str], asyncio.Lock] = {}

    def execute(
        self, tool: Tool, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        """The tool's events, and exactly one result, last.

        Its time begins when it runs: calls may have to wait for a process, and sequential ones
        for their turn. Closing or cancelling gives the call up.
        """
        steps = self._execute(tool, arguments, context)
        return self._in_order(steps, context.session_id) if self._is_in_order else steps

    async def _in_order(
        self, steps: AsyncGenerator[Event | ToolExecutionResult, None], session_id: str
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        """The steps, whose result waits for those of the session's earlier calls."""
        earlier, ended = self._latest.get(session_id), asyncio.Event()
        self._latest[session_id] = ended
        try:
            async with aclosing(steps):
                async for step in steps:
                    if isinstance(step, ToolExecutionResult) and earlier is not None:
                        await earlier.wait()
                    yield step
        finally:
            ended.set()
            if self._latest.get(session_id) is ended:
                del self._latest[session_id]

    async def _execute(
        self, tool: Tool, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolExecutionResult, None]:
        started, began = now(), time.perf_counter()
        output: str | None = None
        reason: str | None = None
        try:
            async with self._turn(tool), aclosing(tool.run(arguments, context)) as steps:
                started, began, deadline = now(), time.perf_counter(), None
                while output is None:
                    step = await _next(steps, deadline)
                    if isinstance(step, ToolBegun):
                        began = time.perf_counter()
                        deadline = began + tool.timeout if tool.timeout is not None else None
                    elif isinstance(step, ToolOutput):
                        output = step.content
                    else:
                        yield step
        except (InvalidArguments, ToolFailed) as error:
            reason = str(error) or "it failed without saying why."
        except _TooLate:
            reason = f"it took longer than {_limit(tool)} and was given up."
            logger.warning("The tool %s failed: %s", tool.name, reason)
        except StopAsyncIteration:
            reason = "it ended without a result."
        except Exception as error:
            logger.exception("Tool %s failed in an unforeseen way", tool.name)
            reason = f"{type(error).__name__}: {error}"
        result = self._result(tool.name, output, reason or "", time.perf_counter() - began)
        self._remember(result, context.session_id, started)
        yield result

    def history(self) -> list[JSONObject]:
        """The last executions, latest first, without what they returned.

        ``{"tool_name", "session_id", "started_at", "execution_time", "success", "error_message"}``
        each; times in seconds.
        """
        return list(reversed(self._history))

    def statistics(self) -> JSONObject:
        """By tool: ``{"count", "failures", "mean_seconds", "p95_seconds"}``.

        The percentile is of the last thousand executions.
        """
        return {name: self._counts[name].as_json() for name in sorted(self._counts)}

    @asynccontextmanager
    async def _turn(self, tool: Tool) -> AsyncIterator[None]:
        """The turn of a sequential tool: no other call of it runs, nor one that was given up.

        Raises (when it is entered):
            ToolFailed: one that was given up has not ended within the tool's time.
        """
        if not tool.sequential:
            yield
            return
        lock = self._alone.setdefault((tool.source, tool.name), asyncio.Lock())
        deadline = None
        while True:
            async with lock:
                given_up = tool.given_up()
                if not given_up:
                    yield
                    return
            if deadline is None and tool.timeout is not None:
                deadline = time.perf_counter() + tool.timeout
            if not await _one_ends(given_up, deadline):
                raise ToolFailed(
                    "an earlier call of it was given up and still runs; it must run alone, and had "
                    f"no turn within {_limit(tool)}."
                )

    def _result(
        self, name: str, output: str | None, reason: str, seconds: float
    ) -> ToolExecutionResult:
        if output is None:
            return ToolExecutionResult.failure(
                name, cut(reason, self.result_characters), execution_time=seconds
            )
        return ToolExecutionResult(
            tool_name=name,
            success=True,
            result=cut(output, self.result_characters),
            execution_time=seconds,
        )

    def _remember(self, result: ToolExecutionResult, session_id: str, started: str) -> None:
        self._counts.setdefault(result.tool_name, _Count()).add(result)
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
    """Its first characters, and how many more there were."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… (cut here; {len(text) - most:,} more characters)"


def _limit(tool: Tool) -> str:
    return "1 second" if tool.timeout == 1 else f"{tool.timeout:g} seconds"


async def _one_ends(calls: Collection[asyncio.Future[Any]], deadline: float | None) -> bool:
    """Wait until one of them does, or it is too late."""
    seconds = None if deadline is None else max(deadline - time.perf_counter(), 0)
    done, _ = await asyncio.wait(calls, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


class _TooLate(Exception):
    """The time of a call is over; a TimeoutError might be one of the tool's own."""


async def _next(
    steps: AsyncGenerator[Event | ToolBegun | ToolOutput, None], deadline: float | None
) -> Event | ToolBegun | ToolOutput:
    """The next step.

    Raises:
        _TooLate: it does not come in time.
    """
    if deadline is None:
        return await steps.__anext__()
    with anyio.move_on_after(max(deadline - time.perf_counter(), 0)):
        return await steps.__anext__()
    raise _TooLate
