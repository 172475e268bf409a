"""The module variables with which a package says what its tools are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType

ALL = "__all__"
DESTRUCTIVE = "__destructive__"
SEQUENTIAL = "__sequential__"
TIMEOUTS = "__timeouts__"
NOT_GROUPS = {ALL, "__path__", DESTRUCTIVE, SEQUENTIAL, TIMEOUTS}
GROUP = re.compile(r"__(\w+?)__")

WrongVariable = tuple[str, str]
"""The name of a variable and what is wrong with its value."""


@dataclass(frozen=True)
class PackageMetadata:
    """What a package says of its tools."""

    exported: tuple[str, ...] = ()
    group: str | None = None
    """Of all its tools."""
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of tools by the variable of the group."""
    destructive: tuple[str, ...] | None = None
    """None: it does not say."""
    sequential: tuple[str, ...] = ()
    timeouts: dict[str, float] = field(default_factory=dict)
    """Seconds by name."""

    def is_destructive(self, name: str) -> bool | None:
        """Tell whether a tool of the package is; None when it does not say."""
        return None if self.destructive is None else name in self.destructive

    def lists(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield every variable that names tools, with the names."""
        yield from self.groups.items()
        yield DESTRUCTIVE, self.destructive or ()
        yield SEQUENTIAL, self.sequential
        yield TIMEOUTS, tuple(self.timeouts)

    def groups_of(self, tools: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield each group that has some of these tools, with those."""
        if self.group and tools:
            yield self.group, list(tools)
        for variable, names in self.groups.items():
            members = [name for name in names if name in tools]
            if members:
                yield variable.strip("_"), members


def read_metadata(
    module: ModuleType, group: str | None
) -> tuple[PackageMetadata, list[WrongVariable]]:
    """Read what the package says, and which of its variables have no use.

    Args:
        module: The package.
        group: Of its tools when it names none.
    """
    variables = dict(vars(module))
    wrong: list[WrongVariable] = []

    def names(variable: str) -> tuple[str, ...] | None:
        value = variables.get(variable)
        found = names_of(value)
        if value is not None and found is None:
            wrong.append((variable, f"{variable} is not a list of names"))
        return found

    own = variables.get("__group__")
    metadata = PackageMetadata(
        exported=tuple(dict.fromkeys(names(ALL) or ())),
        group=own if isinstance(own, str) and own else group,
        groups=dict(_groups(variables)),
        destructive=names(DESTRUCTIVE),
        sequential=names(SEQUENTIAL) or (),
        timeouts=_timeouts(variables.get(TIMEOUTS), wrong),
    )
    return metadata, wrong


def names_of(value: object) -> tuple[str, ...] | None:
    """Return the names in a list of them; None for anything else."""
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        if all(isinstance(each, str) for each in items):
            return tuple(items)
    return None


def _groups(variables: dict[str, object]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for variable, value in variables.items():
        names = names_of(value) if GROUP.fullmatch(variable) else None
        if names is not None and variable not in NOT_GROUPS:
            yield variable, names


def _timeouts(value: object, wrong: list[WrongVariable]) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        wrong.append((TIMEOUTS, f"{TIMEOUTS} is not a dict of seconds by name"))
        return {}
    timeouts: dict[str, float] = {}
    for name, seconds in value.items():
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if isinstance(name, str) and is_number and 0 < seconds < float("inf"):
            timeouts[name] = float(seconds)
        else:
            wrong.append((TIMEOUTS, f"{TIMEOUTS}: {name!r} has no number of seconds"))
    return timeouts
