"""What lies in a folder of tools, without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from .base import Problem
from .results import reason_of

NOT_TOOLS = {"venv", "env", "node_modules", "site-packages", "build", "dist"}


def candidates(folder: Path) -> tuple[list[Path], list[Problem]]:
    """Sub-folders that may be packages of tools, by name, and those that must be renamed."""
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
        problem = _why_not(each)
        if problem is None:
            found.append(each)
        elif (each / "__init__.py").is_file():
            problems.append(Problem(file=str(each), line=None, reason=problem))
    return found, problems


def _why_not(folder: Path) -> str | None:
    if folder.is_symlink():
        return "is a symbolic link, which is not followed"
    if "." in folder.name:
        return "has a dot in its name, so it cannot be imported"
    return None


def unexported(folder: Path, is_loaded: Callable[[Path], bool]) -> Iterator[Problem]:
    """A problem for each file with functions, or errors, that nothing has imported."""
    for file in sorted(folder.glob("*.py")):
        if file.name.startswith(("_", ".", "test_", "conftest")) or is_loaded(file):
            continue
        if error := _syntax_error(file):
            yield Problem(file=str(file), line=error.lineno, reason=reason_of(error))
        elif functions := list(_functions(file)):
            reason = (
                "nothing exports its functions; to offer them, write in the folder's __init__.py: "
                f"from .{file.stem} import {', '.join(functions)}; __all__ = {functions!r}"
            )
            yield Problem(file=str(file), line=None, reason=reason)


def _syntax_error(file: Path) -> SyntaxError | None:
    try:
        ast.parse(file.read_bytes())
    except SyntaxError as error:
        return error
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    return None


def _functions(file: Path) -> Iterator[str]:
    """Names of the public functions of a file."""
    for node in _body(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node.name


def line_of(file: Path, variable: str) -> int | None:
    """The line of a file that assigns a variable of the module last."""
    line = None
    for node in _body(file):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        if any(isinstance(each, ast.Name) and each.id == variable for each in targets):
            line = node.lineno
    return line


def _body(file: Path) -> list[ast.stmt]:
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
