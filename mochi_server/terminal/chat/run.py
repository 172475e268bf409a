"""A run of the session on the screen: its events, the decisions that it waits for, Ctrl-C."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from ...core.aio import end_task, start_task
from ...errors import JSONObject
from ...protocol.events import event_of
from ...protocol.fold import QUESTIONS, Fold
from ..client import (
    Client,
    RequestRefused,
    ServerUnreachable,
    StreamEvent,
    may_come_back,
    path_of,
)
from .decisions import Decisions
from .keyboard import Interrupted, Left, on_interrupt
from .screen import Screen

_QUESTIONS = {each.type for each in QUESTIONS}
_RESULT_LINES = 6


class ShownRun:
    """One run, shown from its first event to its last."""

    def __init__(self, client: Client, screen: Screen, decisions: Decisions, run_id: str) -> None:
        self._client = client
        self._screen = screen
        self._decisions = decisions
        self._run_id = run_id
        self._received: deque[StreamEvent] = deque()
        self._fold = Fold()
        """What was read, which may be more than what is shown."""
        self._is_over = False
        self._changed = asyncio.Event()
        self._interrupts = 0
        self._stopping: asyncio.Task[None] | None = None
        self._begin = time.monotonic()
        self._first_piece: float | None = None
        self._show: dict[str, Callable[[Any], None]] = {
            "run_start": lambda data: screen.status(f"{data['model']} ... (Ctrl-C stops)"),
            "history_compacted": self._history_compacted,
            "history_shortened": self._history_shortened,
            "content_delta": self._content,
            "thinking_delta": self._thinking,
            "tool_call": self._tool_call,
            "tool_call_waiting": lambda data: screen.status(f"{data['tool_name']} waits ..."),
            "tool_sampling": self._tool_sampling,
            "tool_progress": self._tool_progress,
            "tool_result": self._tool_result,
            "tool_call_confirmation_decided": self._decided,
            "tool_input_received": self._decided,
            "tool_continuation_start": self._continues,
            "reply_retry": lambda data: screen.note(f"(Asked again: {data['problem']})"),
            "agent_start": self._agent_start,
            "agent_planning": lambda data: self._agent_text(data, "plans"),
            "agent_execution": lambda data: self._agent_text(data, "works"),
            "agent_tool_call": self._tool_call,
            "agent_tool_result": self._tool_result,
            "agent_complete": self._agent_complete,
            "message_complete": self._complete,
            "error": lambda data: screen.error(f"{data['code']}: {data['message']}"),
        }

    async def show(self) -> None:
        """Show the run to its end; Ctrl-C stops it.

        Raises:
            Left: Ctrl-C a second time.
            RequestRefused: The run is not known any more.
            ServerUnreachable: The server went away.
        """
        reader = start_task(self._read())
        try:
            with on_interrupt(self._interrupt):
                while (event := await self._next()) is not None:
                    await self._handle(event)
            self._screen.finish()
            if self._stopping is not None:
                await self._stopping
                self._screen.note("(Stopped. What was said is kept.)")
            await reader
        finally:
            self._screen.finish()
            await end_task(reader)
            if self._stopping is not None:
                await end_task(self._stopping)

    async def _read(self) -> None:
        """Take events from the stream, also while a question is open."""
        try:
            async with aclosing(self._client.run_events(self._run_id)) as events:
                async for event in events:
                    if (known := event_of(event.name, event.data)) is not None:
                        self._fold.add(known)
                    self._received.append(event)
                    self._changed.set()
        finally:
            self._is_over = True
            self._changed.set()

    async def _next(self) -> StreamEvent | None:
        while not self._received and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
            if self._interrupts > 1:
                raise Left
        return self._received.popleft() if self._received else None

    async def _handle(self, event: StreamEvent) -> None:
        if event.name in _QUESTIONS:
            await self._ask(event.data)
        elif event.name in self._show:
            self._show[event.name](event.data)

    # ---- decisions and Ctrl-C

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._screen.status("Stopping ... (Ctrl-C again leaves)")
            self._stopping = start_task(self._stop())
        self._changed.set()

    async def _stop(self) -> None:
        try:
            await self._client.request("POST", path_of("runs", self._run_id, "stop"))
        except (RequestRefused, ServerUnreachable) as error:
            self._screen.error(str(error))

    async def _ask(self, question: JSONObject) -> None:
        """Ask, unless or until it is decided elsewhere or the run ends."""
        confirmation_id = str(question["confirmation_id"])
        if not await self._is_open(confirmation_id):
            return
        self._screen.finish()
        asking = start_task(self._decisions.decide(question))
        settled = start_task(self._wait_until_settled(confirmation_id))
        try:
            await asyncio.wait({asking, settled}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
            else:
                self._screen.line()
        except Interrupted:
            self._interrupt()
        finally:
            await end_task(asking)
            await end_task(settled)

    async def _is_open(self, confirmation_id: str) -> bool:
        """Return whether the server waits for a decision, or cannot say now whether it does."""
        try:
            run = await self._client.request("GET", path_of("runs", self._run_id))
        except (RequestRefused, ServerUnreachable) as error:
            if may_come_back(error):
                return True
            raise
        return any(each["confirmation_id"] == confirmation_id for each in run["confirmations"])

    async def _wait_until_settled(self, confirmation_id: str) -> None:
        waits = "", True  # also where only a newer server knows all of the question
        while self._fold.confirmations.get(confirmation_id, waits)[1] and not self._is_over:
            self._changed.clear()
            await self._changed.wait()

    # ---- events

    def _continues(self, data: JSONObject) -> None:  # noqa: ARG002 - as the others
        self._begin, self._first_piece = time.monotonic(), None
        self._screen.status("... (Ctrl-C stops)")

    def _content(self, data: JSONObject) -> None:
        if self._first_piece is None:
            self._first_piece = time.monotonic()
        self._screen.answer(str(data["content"]))

    def _thinking(self, data: JSONObject) -> None:
        if self._first_piece is None:
            self._first_piece = time.monotonic()
        self._screen.thinking(str(data["content"]), "Thinking")

    def _history_compacted(self, data: JSONObject) -> None:
        count = data["summarised_messages"]
        self._screen.note(f"(The model reads a summary of the {count} oldest messages.)")

    def _history_shortened(self, data: JSONObject) -> None:
        count = data["dropped_messages"]
        self._screen.note(f"(The {count} oldest messages do not fit the model's window.)")

    def _tool_call(self, data: dict[str, Any]) -> None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in data["arguments"].items())
        self._screen.line(f"{self._indent(data)}* {data['tool_name']}({arguments})", "cyan")
        self._runs(data)

    def _tool_sampling(self, data: dict[str, Any]) -> None:
        count = data["eval_count"]
        tokens = "" if count is None else f", {count:,} tokens"
        asked = f"{data['tool_name']} asked {data['model']}{tokens}"
        self._screen.note(f"{self._indent(data)}  ({asked})")
        self._runs(data)

    def _tool_progress(self, data: dict[str, Any]) -> None:
        total = data["total"]
        share = f"{100 * data['progress'] / total:.0f} %" if total else f"{data['progress']:g}"
        self._screen.status(f"{share} {data['message'] or ''}")

    def _tool_result(self, data: dict[str, Any]) -> None:
        indent = f"{self._indent(data)}  "
        if not data["success"]:
            self._screen.line(f"{indent}{data['tool_name']}: {data['error_message']}", "red")
            return
        lines = str(data["result"]).rstrip().split("\n")
        more = len(lines) - _RESULT_LINES
        for line in lines[:_RESULT_LINES]:
            self._screen.note(f"{indent}{line}")
        if more > 0:
            self._screen.note(f"{indent}... {more} more lines")
        for file in data.get("attachments", ()):
            self._screen.note(f"{indent}[{file['media_type']}, {file['size']:,} bytes]")

    def _decided(self, data: dict[str, Any]) -> None:
        verb = "allowed" if data["approved"] else "denied"
        edited = " with other arguments" if data.get("edited") else ""
        reason = f": {data['reason']}" if data.get("reason") else ""
        self._screen.note(f"{self._indent(data)}({data['tool_name']} {verb}{edited}{reason})")
        if data["approved"]:
            self._runs(data)

    def _runs(self, data: JSONObject) -> None:
        self._screen.status(f"{data['tool_name']} runs ... (Ctrl-C stops)")

    def _agent_start(self, data: dict[str, Any]) -> None:
        indent = "  " * self._depth(data)
        self._screen.line(f"{indent}agent {data['agent_name']}: {data['instruction']}", "magenta")

    def _agent_text(self, data: JSONObject, verb: str) -> None:
        self._screen.thinking(str(data["content"]), f"agent {data['agent_name']} {verb}")

    def _agent_complete(self, data: dict[str, Any]) -> None:
        indent = "  " * self._depth(data)
        if data["success"]:
            self._screen.line(f"{indent}agent {data['agent_name']} is done", "magenta")
        else:
            self._screen.error(f"{indent}agent {data['agent_name']}: {data['error_message']}")

    def _indent(self, data: JSONObject) -> str:
        return "  " * (self._depth(data) + 1) if data.get("agent_call_id") else ""

    def _depth(self, data: JSONObject) -> int:
        """Return the number of agents above the one that an event is of."""
        agent = self._fold.agents.get(str(data["agent_call_id"]))
        return 0 if agent is None else agent.depth

    def _complete(self, data: dict[str, Any]) -> None:
        parts = [str(data["model"])]
        tokens = data["eval_count"]
        if tokens is not None:
            parts.append(f"{tokens:,} tokens")
            seconds = time.monotonic() - (self._first_piece or self._begin)
            if seconds > 1:
                parts.append(f"{tokens / seconds:.0f}/s")
        window = data["context_window"]
        if window["current_window"]:
            parts.append(f"window {100 * window['usage_tokens'] / window['current_window']:.0f} %")
        if data["finish_reason"] == "length":
            parts.append("cut at the limit of tokens")
        if data.get("tool_rounds_exhausted"):
            parts.append("no more tool rounds were allowed")
        if data.get("ignored_options"):
            parts.append(f"ignored: {', '.join(data['ignored_options'])}")
        self._screen.note(" · ".join(parts))
