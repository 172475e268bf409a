"""The wire of Ollama, and clients for users of this library.

The clients are imported at first use: the library under them takes half a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
    from .client import OllamaClient

__all__ = ["AsyncInstructorOllamaClient", "AsyncOllamaClient", "OllamaClient"]

_HOMES = {
    "AsyncInstructorOllamaClient": ".async_client",
    "AsyncOllamaClient": ".async_client",
    "OllamaClient": ".client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
