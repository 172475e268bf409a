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


def _common_fields(source: Confirmation | ToolInputRequired) -> dict[str, Any]:
    """Return the fields that all events of a confirmation have."""
    return {
        "confirmation_id": source.confirmation_id,
        "tool_name": source.tool_name,
        "call_index": source.call_index,
        "tool_call_id": source.tool_call_id,
        "agent_name": source.agent_name,
        "agent_call_id": source.agent_call_id,
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
        session_kept=confirmation.session_kept,
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
    if confirmation.elicitation is not None:
        return input_received(confirmation, decision)
    arguments = decision.arguments if decision.approved else None
    return ConfirmationDecided(
        **_decision_fields(confirmation, decision),
        arguments=confirmation.arguments if arguments is None else arguments,
        edited=arguments is not None,
    )


def input_received(
    source: Confirmation | ToolInputRequired, decision: ConfirmationDecision
) -> ToolInputReceived:
    """Return the event that tells how an elicitation was answered."""
    return ToolInputReceived(
        **_decision_fields(source, decision),
        content=decision.arguments if decision.approved else None,
    )


def _decision_fields(
    source: Confirmation | ToolInputRequired, decision: ConfirmationDecision
) -> dict[str, Any]:
    return {
        **_common_fields(source),
        "approved": decision.approved,
        "reason": decision.reason,
        "code": decision.code,
    }
