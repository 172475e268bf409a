"""Providers and tools that installed packages bring, by the entry points that name them.

The ``pyproject.toml`` of such a package has::

    [project.entry-points."mochi_server.providers"]
    parrot = "mochi_parrot:ParrotProvider"

    [project.entry-points."mochi_server.tools"]
    parrot = "mochi_parrot.tools"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

Group = Literal["mochi_server.providers", "mochi_server.tools"]


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point; nothing of its package is imported yet."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def path(self) -> str:
        """Dotted path of the module, or of what the module has."""
        return ".".join(filter(None, (self.entry.module, self.entry.attr)))

    @property
    def package(self) -> str:
        """Name and version of the package; the module's name where the package has no metadata."""
        package = self.entry.dist
        if package is None or not {"Name", "Version"} <= {*package.metadata}:
            return self.entry.module.partition(".")[0]
        return f"{package.name} {package.version}"


_scanned = cache(entry_points)
"""The entry points of all packages, of which each scan reads a file."""


def plugins(group: Group) -> list[Plugin]:
    """Return what the installed packages name, by name."""
    return sorted(map(Plugin, _scanned().select(group=group)), key=lambda plugin: plugin.name)


def why(error: BaseException) -> str:
    """Say in one line what is wrong with a package that cannot be used."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:  # noqa: BLE001 - the code of others may do anything
        return type(error).__name__
