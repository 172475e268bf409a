"""A call of a model, and what is known about it before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.shown_text import shown_text
from ...errors import InvalidRequest, JSONObject
from ...protocol.messages import ToolCall
from ...tools.base import InvalidArguments, Tool, ToolFailed
from ...tools.execution import ToolExecutionResult
from ..confirmations.asking import AskedCall
from ..confirmations.confirmation import Confirmation

WRITTEN_AS_TEXT = "The model wrote this call as text."


@dataclass(slots=True)
class PlannedCall:
    """A call, and what is known about it before it runs."""

    call: ToolCall
    index: int
    tool: Tool | None
    arguments: JSONObject
    refusal: ToolExecutionResult | None = None
    """Result of a call that will not run."""
    is_approved: bool = False
    """Whether a person has approved it."""
    edited: bool = False
    """Whether a person has changed the arguments."""
    announced: bool = False
    """Whether readers know of it."""
    is_started: bool = False
    """Whether an earlier process has started it, and it goes on."""
    confirmation: Confirmation | None = None
    """What an earlier process has asked about it."""

    def refuse(self, reason: str | None, code: str | None = None) -> None:
        """Let the call not run."""
        reason = reason or "the call was refused."
        self.refusal = ToolExecutionResult.failure(self.call.name, reason, code=code)

    async def validate(self, tool: Tool, arguments: JSONObject) -> None:
        """Let the call have these arguments, completed; refuse it if they are not valid."""
        try:
            self.arguments = await tool.complete(arguments)
        except InvalidArguments as error:
            self.refuse(f"invalid arguments: {error}", InvalidRequest.code)
        except ToolFailed as error:
            self.refuse(str(error))

    def asked(self, tool: Tool) -> AskedCall:
        """Return the call as a person is asked about it."""
        notice = tool.needs_approval
        if notice is None and self.call.recovered:
            notice = WRITTEN_AS_TEXT
        return AskedCall(
            self.call,
            self.index,
            self.arguments,
            tool.source,
            "" if notice is None else shown_text(notice),
            tool.parameters,
        )
