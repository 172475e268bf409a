"""The doctor: what is well with a server's data and surroundings, and what is not.

Nothing is changed by it.
"""

from .findings import Check, Finding, Level, error, note, ok, warning
from .run import CHECKS, DoctorReport, diagnose

__all__ = [
    "CHECKS",
    "Check",
    "DoctorReport",
    "Finding",
    "Level",
    "diagnose",
    "error",
    "note",
    "ok",
    "warning",
]
