"""What a folder says of its tools: in its files, without running them, and in module variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ...core.syntax import parse_python
from ..base import Problem
from ..functions.signature import is_filled_elsewhere

ALL = "__all__"
DESTRUCTIVE = "__destructive__"
SEQUENTIAL = "__sequential__"
TIMEOUTS = "__timeouts__"
SANDBOX = "__sandbox__"
NOT_GROUPS = {ALL, "__path__", DESTRUCTIVE, SEQUENTIAL, TIMEOUTS, SANDBOX}
GROUP = re.compile(r"__(\w+?)__")

WrongVariable = tuple[str, str]


@dataclass(frozen=True)
class PackageMetadata:
    """What a package says of its tools."""

    exported: tuple[str, ...] = ()
    group: str | None = None
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    destructive: tuple[str, ...] | None = None
    sequential: tuple[str, ...] = ()
    timeouts: dict[str, float] = field(default_factory=dict)

    def is_destructive(self, name: str) -> bool | None:
        return None if self.destructive is None else name in self.destructive

    def lists(self) -> Iterator[tuple[str, Sequence[str]]]:
        yield from self.groups.items()
        yield DESTRUCTIVE, self.destructive or ()
        yield SEQUENTIAL, self.sequential
        yield TIMEOUTS, tuple(self.timeouts)

    def groups_of(self, tools: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        if self.group and tools:
            yield self.group, list(tools)
        for variable, names in self.groups.items():
            members = [name for name in names if name in tools]
            if members:
                yield variable.strip("_"), members


def read_metadata(
    module: ModuleType, group: str | None
) -> tuple[PackageMetadata, list[WrongVariable]]:
    """Read what the package says, and which of its variables have no use."""
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


NOT_TOOLS = {"venv", "env", "node_modules", "site-packages", "build", "dist"}


def find_subfolders(folder: Path) -> tuple[list[Path], list[Problem]]:
    """Return the sub-folders that may have tools; and a problem for each that cannot."""
    found: list[Path] = []
    problems: list[Problem] = []
    try:
        inner = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError as error:
        return [], [Problem(file=str(folder), line=None, reason=f"cannot be read: {error}")]
    for each in inner:
        if each.name.startswith((".", "_")) or each.name in NOT_TOOLS:
            continue
        if (each / "pyvenv.cfg").exists():
            continue
        if each.is_symlink():
            reason = "is a symbolic link, which is not followed"
        elif "." in each.name:
            reason = "has a dot in its name, so it cannot be imported"
        else:
            found.append(each)
            continue
        if (each / "__init__.py").is_file():
            problems.append(Problem(file=str(each), line=None, reason=reason))
    return found, problems


def tool_files(folder: Path) -> list[Path]:
    """Return the Python files of a folder that may have tools, beside its ``__init__.py``."""
    skipped = ("_", ".", "test_", "conftest")
    return [file for file in sorted(folder.glob("*.py")) if not file.name.startswith(skipped)]


def public_functions(file: Path) -> dict[str, str | None]:
    """Return the public functions of a file, each with what it lacks to be a tool, or None."""
    return {
        node.name: _lack(node)
        for node in statements_in(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
    }


def _lack(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Say what a function lacks, as far as its text shows."""
    if not ast.get_docstring(function):
        return "has no docstring"
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.annotation is None and not is_filled_elsewhere(each.arg):
            return f"parameter {each.arg!r} has no type hint"
    return "has no hint for its result" if function.returns is None else None


def line_of(file: Path, variable: str) -> int | None:
    """Return the line that assigns or imports a variable of the module last."""
    try:
        statements = statements_in(file)
    except SyntaxError:
        return None
    line = None
    for node in statements:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {each.asname or each.name for each in node.names}
        if variable in names:
            line = node.lineno
    return line


def statements_in(file: Path) -> list[ast.stmt]:
    """Return the statements of a file; none if it cannot be read. Raises SyntaxError."""
    try:
        return parse_python(file.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError):
        return []
