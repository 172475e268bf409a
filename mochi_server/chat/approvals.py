"""The former names of the broker that carries confirmations; settings and subclasses have them."""

from __future__ import annotations

from .confirmations import ApprovalBroker, ApprovalRequest, Decision, LocalApprovals, Pending

__all__ = ["ApprovalBroker", "ApprovalRequest", "Decision", "LocalApprovals", "Pending"]
