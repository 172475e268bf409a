"""Imported when a tool runs; exports nothing to models, and has no function that looks so."""

from operator import truediv as quotient

__all__ = ["quotient"]
