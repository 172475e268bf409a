"""Functions that models may call: where they come from, which are offered, how they run.

The names below are loaded when they are used first: a server imports none of the user's code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalogue import ToolCatalogue
    from .discovery import ToolDiscoveryService
    from .execution import ToolExecutionResult, ToolExecutionService
    from .folder.source import DirectorySource
    from .progress import report_progress
    from .schema import ToolSchemaService

__all__ = [
    "DirectorySource",
    "ToolCatalogue",
    "ToolDiscoveryService",
    "ToolExecutionResult",
    "ToolExecutionService",
    "ToolSchemaService",
    "report_progress",
]

_HOMES = {
    "DirectorySource": ".folder.source",
    "ToolCatalogue": ".catalogue",
    "ToolDiscoveryService": ".discovery",
    "ToolExecutionResult": ".execution",
    "ToolExecutionService": ".execution",
    "ToolSchemaService": ".schema",
    "report_progress": ".progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
