"""Encodes a run as chunks of a UI message stream."""

from __future__ import annotations

from typing import Any

from mochi_server.chat.control import StartedRun
from mochi_server.errors import JSONObject, ToolExecutionDenied
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

TYPES: dict[PartKind, str] = {"text": "text", "thinking": "reasoning"}

FINISH_REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "content_filter": "content-filter",
}
"""The SDK's names of reasons for the end of a reply; all others are ``other``."""

DONE = b"data: [DONE]\n\n"


class UIChunkEncoder(StepEncoder):
    """Encodes a run as chunks; a question ends it, and the next request decides."""

    def __init__(
        self,
        started: StartedRun,
        message_id: str | None,
        answered: ApprovalId | None = None,
    ) -> None:
        """Begin a stream.

        Args:
            started: The run.
            message_id: The message that the stream goes on with; None: a new one.
            answered: The question that the request answers, if it goes on with a run.
        """
        super().__init__(started, answered)
        self._message_id = message_id or f"msg_{self.name}"
        self._part = 0
        """Number of texts and thoughts of the run so far."""
        self._asked: set[str] = set()
        """Ids of the calls about which a person was asked."""

    def begin(self) -> bytes:
        begun = frame("start", messageId=self._message_id, messageMetadata={"mochi": self.extras})
        # The results of calls that were asked about belong to the step that has them.
        return begun if self.after else begun + self.begin_step()

    def begin_step(self) -> bytes:
        return frame("start-step")

    def end_step(self, number: int) -> bytes:  # noqa: ARG002 - they have no names
        return frame("finish-step")

    def open(self, kind: PartKind) -> bytes:
        self._part += 1
        name = TYPES[kind]
        self.before_delta = frame_before_delta(f"{name}-delta", id=str(self._part))
        return frame(f"{name}-start", id=str(self._part))

    def close(self, kind: PartKind) -> bytes:
        return frame(f"{TYPES[kind]}-end", id=str(self._part))

    def call(self, call_id: str, name: str, arguments: JSONObject, *, is_clients: bool) -> bytes:
        call: dict[str, Any] = {"toolCallId": call_id, "toolName": name}
        if not is_clients:
            call["dynamic"] = True
        return frame("tool-input-available", **call, input=arguments)

    def result(self, event: ToolResultReady) -> bytes:
        call_id = event.tool_call_id
        if event.success:
            return frame("tool-output-available", toolCallId=call_id, output=event.result)
        if event.code == ToolExecutionDenied.code and call_id in self._asked:
            return frame("tool-output-denied", toolCallId=call_id)
        return frame("tool-output-error", toolCallId=call_id, errorText=event.error_message)

    def ask(
        self, event: ConfirmationRequired | ToolInputRequired, approval_id: str
    ) -> bytes | None:
        if isinstance(event, ToolInputRequired) or event.agent_call_id is not None:
            return None
        call_id = event.tool_call_id
        self._asked.add(call_id)
        asked = frame("tool-approval-request", approvalId=approval_id, toolCallId=call_id)
        return (
            asked
            + self.end_step(self.fold.reply)
            + frame("finish", finishReason="tool-calls")
            + DONE
        )

    def end(self, complete: MessageComplete) -> bytes:
        metadata: dict[str, Any] = {
            "mochi": {
                **extras_of(self.started, complete),
                "model": self.started.model,
            }
        }
        prompt, generated = complete.prompt_eval_count, complete.eval_count
        if prompt is not None and generated is not None:
            usage = {"inputTokens": prompt, "outputTokens": generated}
            metadata["usage"] = {**usage, "totalTokens": prompt + generated}
        reason = FINISH_REASONS.get(complete.finish_reason or "", "other")
        ended = frame("finish", finishReason=reason, messageMetadata=metadata)
        return self.end_step(self.fold.reply) + ended + DONE

    def fail(self, event: ErrorEvent) -> bytes:
        return frame("error", errorText=event.message) + DONE

    def stop(self) -> bytes:
        return frame("abort", reason="The run was stopped.") + DONE
