"""Former names of what carries confirmations; settings and brokers of users may have them."""

from __future__ import annotations

from . import confirmations

ApprovalBroker = confirmations.ConfirmationBroker
ApprovalRequest = confirmations.ConfirmationRequest
Decision = confirmations.ConfirmationDecision
LocalApprovals = confirmations.LocalConfirmations
Pending = confirmations.PendingConfirmation
