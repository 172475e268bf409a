"""What is well with a server's data and surroundings, and what is not; nothing is changed."""

from .findings import Check, Finding, Level, error, note, ok, warning
from .run import CHECKS, Report, diagnose

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Level",
    "Report",
    "diagnose",
    "error",
    "note",
    "ok",
    "warning",
]
