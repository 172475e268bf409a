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
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

Group = Literal["mochi_server.providers", "mochi_server.tools"]


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point; nothing of its package is imported yet."""

    name: str
    module: str
    """Dotted name; if it is none, the import of the module says so."""
    attribute: str
    """Dotted path in the module; empty: the module itself."""
    distribution: Distribution

    @property
    def path(self) -> str:
        """Dotted path of the module, or of what the module has."""
        return ".".join(filter(None, (self.module, self.attribute)))

    @property
    def place(self) -> Path:
        """Folder of the package, or its only file; to find it nothing is imported."""
        spec = find_spec(self._top)
        if spec is None:  # it is not where it should be
            return Path(str(self.distribution.locate_file(self._top)))
        return Path((spec.submodule_search_locations or [spec.origin or self._top])[0])

    @property
    def package(self) -> str:
        """Name and version of the package; the module's name where the package has no metadata."""
        if not {"Name", "Version"} <= {*self.distribution.metadata}:
            return self._top
        return f"{self.distribution.name} {self.distribution.version}"

    @property
    def _top(self) -> str:
        return self.module.strip(".").partition(".")[0]


_scanned = cache(entry_points)
"""The entry points of all packages, of which each scan reads a file."""


def plugins(group: Group) -> list[Plugin]:
    """Return what the installed packages name, by name."""
    return sorted(map(_plugin, _scanned().select(group=group)), key=lambda plugin: plugin.name)


def _plugin(entry: EntryPoint) -> Plugin:
    module, _, attribute = entry.value.partition("[")[0].partition(":")
    package = cast("Distribution", entry.dist)  # which all have that a scan finds
    return Plugin(entry.name, module.strip(), attribute.strip(), package)


def why(error: BaseException) -> str:
    """Say in one line what is wrong with a package that cannot be used."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:  # noqa: BLE001 - the code of others may do anything
        return type(error).__name__
