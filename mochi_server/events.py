"""The events of a turn, where users of the library import them from."""

from .protocol.events import *  # noqa: F403 - those of its ``__all__``
