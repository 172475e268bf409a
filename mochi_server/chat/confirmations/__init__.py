"""Confirmations: calls that wait for a person, decisions, and rules that decide.

A confirmation is stored before it is announced, and outlives the process that asks. The first
decision counts, whichever process it arrives at; once it was acted on, the history has it.
"""

from .confirmation import Confirmation, ConfirmationDecision, ConfirmationRecord
from .store import ConfirmationStore

__all__ = ["Confirmation", "ConfirmationDecision", "ConfirmationRecord", "ConfirmationStore"]
