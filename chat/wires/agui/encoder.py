"""Encodes a run as events of AG-UI."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson

from mochi_server.chat.control import StartedRun
from mochi_server.core.clock import timestamp, utc_now
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ErrorEvent,
    MessageComplete,
    ToolInputRequired,
    ToolResultReady,
)
from mochi_server.protocol.fold import PartKind

from ..common.answers import extras_of
from ..common.approvals import ApprovalId
from ..common.steps import StepEncoder, frame, frame_before_delta
from .schemas import RunAgentInput

PROTOCOL_VERSION = "1.0"
"""Not named to clients that name none, of before 1.0: they refuse what it has added."""

DECISION: JSONObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {
            "type": "object",
            "description": "Arguments of the call in place of the model's, all of them.",
        },
        "reason": {"type": "string", "description": "Told to the model when the call is denied."},
    },
    "required": ["approved"],
}
"""JSON Schema of the answer to an interrupt about a call."""


class EventEncoder(StepEncoder):
    """Encodes a run as events of AG-UI; a question ends it with an interrupt."""

    def __init__(
        self,
        started: StartedRun,
        run: RunAgentInput,
        answered: ApprovalId | None = None,
    ) -> None:
        super().__init__(started, answered)
        self._ids = {"threadId": run.thread_id, "runId": run.run_id}
        self._names_version = run.protocol_version is not None
        self._part = 0
        """Number of texts and thoughts of this step so far."""
        self._has_text = False
        self._id = self._message_id
        """Id of the text or thought that the model is at."""
        self._pending: list[str] = []
        """Ids of the calls of the client's functions."""

    @property
    def _message_id(self) -> str:
        return f"msg_{self.name}_{self.fold.reply}"

    def begin(self) -> bytes:
        version = {"protocolVersion": PROTOCOL_VERSION} if self._names_version else {}
        begun = frame("RUN_STARTED", **self._ids, **version, metadata={"mochi": self.extras})
        return begun + self.begin_step()

    def begin_step(self) -> bytes:
        self._part, self._has_text = 0, False
        return frame("STEP_STARTED", stepName=f"step {self.fold.reply + 1}")

    def end_step(self, number: int) -> bytes:
        return frame("STEP_FINISHED", stepName=f"step {number + 1}")

    def open(self, kind: PartKind) -> bytes:
        self._part += 1
        if kind == "thinking":
            self._id = f"rsn_{self.name}_{self.fold.reply}_{self._part}"
            self.before_delta = frame_before_delta("REASONING_MESSAGE_CONTENT", messageId=self._id)
            begun = frame("REASONING_START", messageId=self._id)
            return begun + frame("REASONING_MESSAGE_START", messageId=self._id, role="reasoning")
        self._id = f"{self._message_id}_{self._part}" if self._has_text else self._message_id
        self._has_text = True
        self.before_delta = frame_before_delta("TEXT_MESSAGE_CONTENT", messageId=self._id)
        return frame("TEXT_MESSAGE_START", messageId=self._id, role="assistant")

    def close(self, kind: PartKind) -> bytes:
        if kind == "thinking":
            ended = frame("REASONING_MESSAGE_END", messageId=self._id)
            return ended + frame("REASONING_END", messageId=self._id)
        return frame("TEXT_MESSAGE_END", messageId=self._id)

    def call(self, call_id: str, name: str, arguments: JSONObject, *, is_clients: bool) -> bytes:
        if is_clients:
            self._pending.append(call_id)
        return b"".join(
            [
                frame(
                    "TOOL_CALL_START",
                    toolCallId=call_id,
                    toolCallName=name,
                    parentMessageId=self._message_id,
                ),
                frame("TOOL_CALL_ARGS", toolCallId=call_id, delta=orjson.dumps(arguments).decode()),
                frame("TOOL_CALL_END", toolCallId=call_id),
            ]
        )

    def result(self, event: ToolResultReady) -> bytes:
        return frame(
            "TOOL_CALL_RESULT",
            messageId=f"res_{self.name}_{self.fold.reply}_{event.tool_call_id}",
            toolCallId=event.tool_call_id,
            role="tool",
            content=event.result or "" if event.success else f"Error: {event.error_message}",
        )

    def ask(self, event: ConfirmationRequired | ToolInputRequired, approval_id: str) -> bytes:
        interrupt: JSONObject = {"id": approval_id, **_question(event)}
        if event.agent_call_id is None:
            interrupt["toolCallId"] = event.tool_call_id
        if event.timeout_seconds:
            expires_at = utc_now() + timedelta(seconds=event.timeout_seconds)
            interrupt["expiresAt"] = timestamp(expires_at)
        return self._finish(outcome={"type": "interrupt", "interrupts": [interrupt]})

    def end(self, complete: MessageComplete) -> bytes:
        more: dict[str, Any] = {
            "result": {
                **extras_of(self.started, complete),
                "finish_reason": complete.finish_reason,
            }
        }
        counted = (complete.prompt_eval_count, complete.eval_count)
        if self.fold.reply == 0 and None not in counted:  # of one reply, which is the whole run
            prompt, generated = (count or 0 for count in counted)
            usage = {"inputTokens": prompt, "outputTokens": generated}
            total = {"model": complete.model, "totalTokens": prompt + generated}
            more["usage"] = [{**usage, **total}]
        pending = {"pendingToolCallIds": self._pending} if self._names_version else {}
        return self._finish(outcome={"type": "success", **pending}, **more)

    def fail(self, event: ErrorEvent) -> bytes:
        return frame("RUN_ERROR", message=event.message, code=event.code)

    def stop(self) -> bytes:
        outcome = {"outcome": {"type": "cancelled"}} if self._names_version else {}
        return self._finish(**outcome)

    def _finish(self, **more: Any) -> bytes:  # noqa: ANN401 - JSON
        return self.end_step(self.fold.reply) + frame("RUN_FINISHED", **self._ids, **more)


def _question(event: ConfirmationRequired | ToolInputRequired) -> JSONObject:
    """Return the fields of an interrupt that say what is asked."""
    extras: JSONObject = {"tool_name": event.tool_name, "shown": event.shown}
    if event.agent_name is not None:
        extras["agent_name"] = event.agent_name
    metadata: JSONObject = {"mochi": extras}
    if isinstance(event, ToolInputRequired):
        asked = event.elicitation
        if "url" in asked:
            extras["url"] = asked["url"]
        schema = asked.get("requested_schema") or {"type": "object"}
        text = asked.get("message", "")
        common = {"reason": "input_required", "message": text}
        return {**common, "responseSchema": schema, "metadata": metadata}
    if event.notice:
        extras["notice"] = event.notice
    return {
        "reason": "tool_call" if event.agent_call_id is None else "confirmation",
        "message": f"Run {event.tool_name} with {event.shown}?",
        "responseSchema": DECISION,
        "metadata": metadata,
    }
