"""Runs for MCP clients: each reports its progress, puts its questions, and stops with its client.

A client that speaks an older protocol is asked while its request is open. One of 2026-07-28 gets
the questions as the answer of its request; it sends the request again, with what the person said,
and reads the rest of the run, in whichever process that arrives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..chat.runs.log import LogReader
from ..core.aio import BackgroundTasks
from ..core.shown_text import shown_text
from ..errors import (
    ConfirmationNotFound,
    InvalidRequest,
    MochiError,
    RunNotFound,
    ToolConfirmationTimeout,
)
from ..protocol.events import ConfirmationRequired, Event, ToolInputRequired
from ..protocol.fold import DECISIONS
from ..runtime import Runtime

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

HELD_SECONDS = 3600.0
"""Longest time that a run waits for a client to send its request again."""

CANNOT_ASK = "the client could not ask a person."
DISMISSED = "the person has closed the question without an answer."

NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}
"""The form of a question: to accept it is to allow the call."""


class RunReading(Protocol):
    """What is kept of a run for the client's answer."""

    caller: str
    """Who makes the calls about which a person is asked, unless an agent does."""

    def add(self, event: Event) -> str | None:
        """Take note of an event; return what progress says of it."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What a person is asked."""

    confirmation_id: str
    text: str
    form: dict[str, Any] = field(default_factory=lambda: NO_FIELDS)
    """JSON Schema of the answer."""

    def request(self) -> types.ElicitRequest:
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=self.text, requested_schema=self.form)
        )


@dataclass(slots=True)
class _Position:
    """Where a client is in a run, between two of its requests."""

    run_id: str
    after: int = 0
    """Number of the last event before its open questions."""
    asked: Sequence[str] = ()
    """Ids of the confirmations that it was asked about."""

    @classmethod
    def read(cls, state: str) -> _Position:
        values = json.loads(state)  # of our own making: it was sealed
        return cls(values["run"], values["after"], values["asked"])

    def written(self) -> str:
        return json.dumps({"run": self.run_id, "after": self.after, "asked": [*self.asked]})


@dataclass(slots=True, kw_only=True)
class ClientRun:
    """A run that a request of a client reads."""

    run_id: str
    reader: LogReader
    decided: set[str] = field(default_factory=set)
    """Ids of the confirmations about which this request has brought the decisions."""


class ClientRuns:
    """The runs of all clients of this process."""

    def __init__(self, runtime: Runtime, tasks: BackgroundTasks) -> None:
        self._runtime = runtime
        self._tasks = tasks

    async def resume(self, state: str, answers: Mapping[str, object]) -> ClientRun:
        """Return a run that has asked the client, after its answers have decided.

        Raises:
            RunNotFound: there is no such run any more.
            StorageError, ConfirmationUnavailable: it cannot be read or decided now.
        """
        position = _Position.read(state)
        reader = await self._runtime.run_control.join(position.run_id, position.after)
        if reader is None:
            raise RunNotFound(run_id=position.run_id)
        run = ClientRun(run_id=position.run_id, reader=reader)
        try:
            for confirmation_id in position.asked:
                answer = answers.get(confirmation_id)
                if isinstance(answer, types.ElicitResult):
                    run.decided.add(confirmation_id)
                    await self._decide(confirmation_id, answer)
        except BaseException:
            reader.leave()
            raise
        return run

    async def read(
        self, context: Context, run: ClientRun, reading: RunReading
    ) -> types.InputRequiredResult | None:
        """Read a run to its end; or return what the client must be asked before.

        If the request is cancelled, the run is stopped.

        Raises:
            MochiError: what ended the run.
        """
        is_held = False
        try:
            if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                required = await self._read_until_asked(context, run, reading)
                is_held = required is not None
                if is_held:
                    self._tasks.spawn(_hold(run.reader), name="a run that asks an MCP client")
                    return required
            else:
                await self._read_and_ask(context, run, reading)
        except BaseException:
            self._tasks.spawn(self._stop(run.run_id), name="a run of an MCP client")
            raise
        finally:
            if not is_held:
                run.reader.leave()
        if run.reader.failure is not None:
            raise run.reader.failure
        return None

    async def _read_until_asked(
        self, context: Context, run: ClientRun, reading: RunReading
    ) -> types.InputRequiredResult | None:
        while (batch := await run.reader.next()) is not None:
            questions: dict[str, _Question] = {}
            position = _Position(run.run_id)
            for number, event in batch:
                if (question := _question_of(event, reading.caller)) is not None:
                    if question.confirmation_id not in run.decided:
                        position.after = position.after or number - 1
                        questions[question.confirmation_id] = question
                elif isinstance(event, DECISIONS):
                    questions.pop(event.confirmation_id, None)
            await _report(context, batch, reading)
            if questions:
                position.asked = [*questions]
                requests: types.InputRequests = {
                    name: each.request() for name, each in questions.items()
                }
                return types.InputRequiredResult(
                    input_requests=requests, request_state=position.written()
                )
        return None

    async def _read_and_ask(self, context: Context, run: ClientRun, reading: RunReading) -> None:
        asking: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:
            while (batch := await run.reader.next()) is not None:
                for _, event in batch:
                    if (question := _question_of(event, reading.caller)) is not None:
                        scope = asking[question.confirmation_id] = anyio.CancelScope()
                        group.start_soon(self._ask, context, question, scope)
                    elif isinstance(event, DECISIONS):
                        asking[event.confirmation_id].cancel()
                await _report(context, batch, reading)
            group.cancel_scope.cancel()

    async def _ask(self, context: Context, question: _Question, scope: anyio.CancelScope) -> None:
        """Ask the person at the client, unless somebody else decides before."""
        with scope:
            answer: types.ElicitResult | None = None
            try:
                answer = await context.session.elicit_form(
                    question.text, question.form, context.request_id
                )
            except (MCPError, ValidationError) as error:
                logger.info("An MCP client could not ask a person: %s", error)
            try:
                await self._decide(question.confirmation_id, answer)
            except MochiError as error:  # it expires, or somebody else decides
                logger.warning("%s", error.message)

    async def _decide(self, confirmation_id: str, answer: types.ElicitResult | None) -> None:
        """Follow an answer; one that does not fit what was asked counts as none."""
        reason = CANNOT_ASK if answer is None else None
        if answer is not None and answer.action == "cancel":
            reason = DISMISSED
        decide = partial(self._runtime.inbox.decide, confirmation_id)
        with suppress(ConfirmationNotFound, ToolConfirmationTimeout):  # decided meanwhile
            if answer is not None and answer.action == "accept":
                stored = await self._runtime.inbox.find(confirmation_id)
                content: Any = None  # of a question whether a call may run, it means nothing
                if stored is not None and stored.confirmation.elicitation is not None:
                    content = answer.content or {}
                try:
                    await decide(approved=True, arguments=content)
                except InvalidRequest as error:
                    reason = error.message
                else:
                    return
            await decide(approved=False, reason=reason)

    async def _stop(self, run_id: str) -> None:
        """Stop a run, and remove the files of a direct call, which nobody takes now."""
        with suppress(MochiError):  # it has ended meanwhile
            await self._runtime.runs.stop(run_id)
        await self._runtime.attachments.remove(run_id)


def can_ask(context: Context) -> bool:
    """Return whether the client can put a question to a person."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request


def _question_of(event: Event, caller: str) -> _Question | None:
    """Return the question that an event puts to a person."""
    if isinstance(event, ConfirmationRequired):
        who = caller if event.agent_name is None else f"The agent {event.agent_name}"
        text = f"{who} wants to call the tool {event.tool_name} with\n{event.shown}\n"
        notice = f"{event.notice}\n\n" if event.notice else ""
        return _Question(event.confirmation_id, f"{notice}{text}Allow this call?")
    if isinstance(event, ToolInputRequired):
        asked = event.elicitation
        words = [each for each in (asked["message"], asked.get("url")) if each is not None]
        text = f"The tool {event.tool_name} asks:\n{shown_text(chr(10).join(map(str, words)))}"
        schema = asked.get("requested_schema")
        form = schema if isinstance(schema, dict) else NO_FIELDS
        return _Question(event.confirmation_id, text, form)
    return None


async def _report(
    context: Context, batch: Sequence[tuple[int, Event]], reading: RunReading
) -> None:
    texts = [text for _, event in batch if (text := reading.add(event))]
    if texts:
        await context.session.report_progress(batch[-1][0], message="".join(texts))


async def _hold(reader: LogReader) -> None:
    """Let a run go on until its client reads it again."""
    try:
        with anyio.move_on_after(HELD_SECONDS):
            while await reader.next() is not None:
                pass
    finally:
        reader.leave()
