"""The events that tell readers of a run what is asked, and what was decided."""

from __future__ import annotations

from typing import Any

from ...protocol.events import (
    ConfirmationDecided,
    ConfirmationRequired,
    ToolInputReceived,
    ToolInputRequired,
)
from .confirmation import Confirmation, ConfirmationDecision


def _common_fields(confirmation: Confirmation) -> dict[str, Any]:
    """Return the fields that all events of a confirmation have."""
    return {
        "confirmation_id": confirmation.confirmation_id,
        "tool_name": confirmation.tool_name,
        "call_index": confirmation.call_index,
        "tool_call_id": confirmation.tool_call_id,
        "agent_name": confirmation.agent_name,
        "agent_call_id": confirmation.agent_call_id,
    }


def announcement_of(confirmation: Confirmation) -> ConfirmationRequired:
    """Return the event that tells of a call that waits for a person."""
    return ConfirmationRequired(
        **_common_fields(confirmation),
        arguments=confirmation.arguments,
        queue_position=confirmation.queue_position,
        queue_total=confirmation.queue_total,
        timeout_seconds=confirmation.timeout_seconds,
        shown=confirmation.shown,
        notice=confirmation.notice,
        suggestions=confirmation.suggestions,
    )


def input_required(confirmation: Confirmation) -> ToolInputRequired:
    """Return the event that tells of a tool that asks a person."""
    return ToolInputRequired(
        **_common_fields(confirmation),
        elicitation=confirmation.elicitation or {},
        timeout_seconds=confirmation.timeout_seconds,
        shown=confirmation.shown,
    )


def decision_event_of(
    confirmation: Confirmation, decision: ConfirmationDecision
) -> ConfirmationDecided | ToolInputReceived:
    arguments = decision.arguments if decision.approved else None
    fields = {
        **_common_fields(confirmation),
        "approved": decision.approved,
        "reason": decision.reason,
        "code": decision.code,
    }
    if confirmation.elicitation is not None:
        return ToolInputReceived(**fields, content=arguments)
    return ConfirmationDecided(
        **fields,
        arguments=confirmation.arguments if arguments is None else arguments,
        edited=arguments is not None,
    )


def withdrawn(asked: ToolInputRequired, decision: ConfirmationDecision) -> ToolInputReceived:
    """Return the event that tells that a tool does not want to know any more what it asked."""
    return ToolInputReceived(
        confirmation_id=asked.confirmation_id,
        tool_name=asked.tool_name,
        call_index=asked.call_index,
        tool_call_id=asked.tool_call_id,
        agent_name=asked.agent_name,
        agent_call_id=asked.agent_call_id,
        approved=decision.approved,
        reason=decision.reason,
        code=decision.code,
        content=None,
    )
