"""The self-hosted conversation server, as a library: this package imports no Django.

The names below are loaded when they are used first, so that ``import mochi_server`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from . import errors, events
    from .app import create_app
    from .config import MochiServerSettings
    from .protocol.turn_request import TurnRequest
    from .providers.base import Provider
    from .runtime import Runtime
    from .sessions.storage.base import SessionStorage
    from .tools.base import Tool

__all__ = [
    "MochiServerSettings",
    "Provider",
    "Runtime",
    "SessionStorage",
    "Tool",
    "TurnRequest",
    "__version__",
    "create_app",
    "errors",
    "events",
]

_HOMES = {
    "MochiServerSettings": ".config",
    "Provider": ".providers.base",
    "Runtime": ".runtime",
    "SessionStorage": ".sessions.storage.base",
    "Tool": ".tools.base",
    "TurnRequest": ".protocol.turn_request",
    "create_app": ".app",
}
_MODULES = ("errors", "events")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
