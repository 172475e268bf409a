"""The module variables with which a package says what its tools are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType

DESTRUCTIVE = "__destructive__"
NOT_GROUPS = {"__all__", "__path__", DESTRUCTIVE, "__sequential__", "__timeouts__"}
GROUP = re.compile(r"__(\w+?)__")
Complaint = tuple[str, str]
"""A variable and what is wrong with it."""


@dataclass(frozen=True)
class Marks:
    """What a package says of itself."""

    exported: tuple[str, ...] = ()
    group: str | None = None
    """Of all its tools."""
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of the variable."""
    destructive: tuple[str, ...] | None = None
    """Null: it does not say."""
    sequential: tuple[str, ...] = ()
    timeouts: dict[str, float] = field(default_factory=dict)
    """Seconds."""

    def is_destructive(self, name: str) -> bool | None:
        """Whether a tool of the package is; null when nobody knows."""
        return None if self.destructive is None else name in self.destructive

    def named(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Every variable that names tools, with the names."""
        yield from self.groups.items()
        yield DESTRUCTIVE, self.destructive or ()
        yield "__sequential__", self.sequential
        yield "__timeouts__", tuple(self.timeouts)

    def groups_of(self, tools: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Groups with those of the given tools that are in them, if any are."""
        if self.group and tools:
            yield self.group, list(tools)
        for variable, names in self.groups.items():
            members = [name for name in names if name in tools]
            if members:
                yield variable.strip("_"), members


def read_marks(module: ModuleType, group: str | None) -> tuple[Marks, list[Complaint]]:
    """What the package says, as far as it is well said.

    Args:
        module: The package.
        group: Of its tools when it names none.
    """
    space = dict(vars(module))
    own = space.get("__group__")
    complaints: list[Complaint] = []
    marks = Marks(
        exported=tuple(dict.fromkeys(_names(space, "__all__", complaints) or ())),
        group=own if isinstance(own, str) and own else group,
        groups=dict(_groups(space)),
        destructive=_names(space, DESTRUCTIVE, complaints),
        sequential=_names(space, "__sequential__", complaints) or (),
        timeouts=_timeouts(space, complaints),
    )
    return marks, complaints


def _names(
    space: dict[str, object], variable: str, complaints: list[Complaint]
) -> tuple[str, ...] | None:
    value = space.get(variable)
    if value is None:
        return None
    names = names_of(value)
    if names is None:
        complaints.append((variable, f"{variable} is not a list of names"))
    return names


def names_of(value: object) -> tuple[str, ...] | None:
    """Return the names in a list of them; None for anything else."""
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        if all(isinstance(each, str) for each in items):
            return tuple(items)
    return None


def _groups(space: dict[str, object]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for variable, value in space.items():
        names = names_of(value) if GROUP.fullmatch(variable) else None
        if names is not None and variable not in NOT_GROUPS:
            yield variable, names


def _timeouts(space: dict[str, object], complaints: list[Complaint]) -> dict[str, float]:
    value = space.get("__timeouts__")
    if value is None:
        return {}
    if not isinstance(value, dict):
        complaints.append(("__timeouts__", "__timeouts__ is not a dict of seconds by name"))
        return {}
    good: dict[str, float] = {}
    for name, seconds in value.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if isinstance(name, str) and number and 0 < seconds < float("inf"):
            good[name] = float(seconds)
        else:
            complaints.append(("__timeouts__", f"__timeouts__: {name!r} has no number of seconds"))
    return good
