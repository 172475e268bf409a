"""Tool calls that a model writes as text: recognised in its reply, and streamed honestly."""

from .demanded import DemandedCall
from .stage import TextCalls

__all__ = ["DemandedCall", "TextCalls"]
