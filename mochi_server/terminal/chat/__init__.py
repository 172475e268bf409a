"""``mochi-server chat``: a conversation in the terminal."""

from .program import chat

__all__ = ["chat"]
