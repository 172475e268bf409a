"""Providers and tools that installed packages bring, by the entry points that name them.

The ``pyproject.toml`` of such a package has::

    [project.entry-points."mochi_server.providers"]
    parrot = "mochi_parrot:ParrotProvider"

    [project.entry-points."mochi_server.tools"]
    parrot = "mochi_parrot.tools"
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, cast

Group = Literal["mochi_server.providers", "mochi_server.tools"]

LOAD_SECONDS: Final = 30.0
"""Longest time until a package's provider is imported and built."""

_LOADED: Final = 85
"""Exit code of a process in which a provider was built, or an error was raised."""

_TRY_TO_LOAD: Final = f"""
import sys
module, name, alias, *sys.path[:] = sys.argv[1:]
from importlib import import_module
from os import _exit
try:
    value = getattr(import_module(module), name)
    if isinstance(value, type):
        value(alias)
except (Exception, SystemExit):
    pass
_exit({_LOADED})
"""


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


def load_problem(alias: str, path: str, seconds: float = LOAD_SECONDS) -> str | None:
    """Say why no process could go on that builds a provider: it is tried in another one.

    None if it is built or raises an error, which whoever builds it gets. Blocks.
    """
    module, _, name = path.rpartition(".")
    command = (sys.executable, "-c", _TRY_TO_LOAD, module, name, alias, *sys.path)
    try:
        ended = subprocess.run(  # noqa: S603 - Python itself
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"loading it has not ended after {seconds:g} seconds"
    if ended.returncode == _LOADED:
        return None
    return f"loading it ends the process, with exit code {ended.returncode}"


def why(error: BaseException) -> str:
    """Say in one line what is wrong with a package that cannot be used."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:  # noqa: BLE001 - the code of others may do anything
        return type(error).__name__
