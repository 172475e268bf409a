"""Former names of what keeps confirmations; settings and programs of users may have them."""

from __future__ import annotations

from .confirmations.confirmation import Confirmation, ConfirmationDecision
from .confirmations.memory import MemoryConfirmationStore
from .confirmations.store import ConfirmationStore, StoredConfirmation

ApprovalBroker = ConfirmationStore
ApprovalRequest = Confirmation
Decision = ConfirmationDecision
Pending = StoredConfirmation


class LocalApprovals(MemoryConfirmationStore):
    """Confirmations of one process, with a timeout of its own."""

    def __init__(self, *, timeout: float | None = None) -> None:
        super().__init__()
        self.timeout = timeout
