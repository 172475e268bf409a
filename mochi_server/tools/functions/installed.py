"""Functions of installed packages as tools: what the entry points ``mochi_server.tools`` name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import ModuleType

from ...plugins import Plugin, why
from ..base import Problem
from .registered import RegisteredSource, tool_of
from .signature import Function


class InstalledSource(RegisteredSource):
    """Tools of all packages; those of one entry point are a group with its name.

    They run in the process of the server, as ``RegisteredSource`` says.
    """

    name = "installed"

    def __init__(self, found: Sequence[Plugin], *, default_timeout: float | None) -> None:
        """Import what the entry points name; what cannot be used becomes a problem."""
        self._groups: dict[str, Sequence[str]] = {}
        self._problems: list[Problem] = []
        functions: dict[str, Function] = {}
        for plugin in found:
            functions.update(self._own(plugin, functions))
        super().__init__(list(functions.values()), default_timeout=default_timeout)

    def _own(self, plugin: Plugin, taken: Collection[str]) -> dict[str, Function]:
        try:
            own = _functions_of(plugin, taken)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others may do anything
            reason = f"the package {plugin.package} cannot be used: {why(error)}"
            self._problems.append(Problem(file=plugin.path, line=None, reason=reason))
            return {}
        self._groups[plugin.name] = [*self._groups.get(plugin.name, ()), *own]
        return own

    def groups(self) -> Mapping[str, Sequence[str]]:
        return self._groups

    def problems(self) -> Sequence[Problem]:
        return self._problems


def _functions_of(plugin: Plugin, taken: Collection[str]) -> dict[str, Function]:
    loaded = plugin.entry.load()
    is_module = isinstance(loaded, ModuleType)
    functions = [getattr(loaded, name) for name in loaded.__all__] if is_module else [loaded]
    named = {tool_of(function).name: function for function in functions}
    if both := sorted(named.keys() & set(taken)):
        raise ValueError(f"another package has {', '.join(both)} too")
    return named
