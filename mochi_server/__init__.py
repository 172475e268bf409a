"""The self-hosted conversation server, as a library: this package imports no Django.

The names below are loaded when they are used first, so that ``import mochi_server`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .app import create_app
    from .config import MochiServerSettings
    from .runtime import Runtime

__all__ = ["MochiServerSettings", "Runtime", "__version__", "create_app"]

_HOMES = {"MochiServerSettings": ".config", "Runtime": ".runtime", "create_app": ".app"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
