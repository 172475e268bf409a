"""What lies in a folder of tools, without running any of it."""

from __future__ import annotations

import ast
from pathlib import Path

from ..base import Problem
from ..functions.signature import is_filled_elsewhere

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


def modules(folder: Path) -> list[Path]:
    """The Python files of a folder that may have tools, by name, beside its ``__init__.py``."""
    skipped = ("_", ".", "test_", "conftest")
    return [file for file in sorted(folder.glob("*.py")) if not file.name.startswith(skipped)]


def public_functions(file: Path) -> dict[str, str | None]:
    """The public functions of a file, each with what it lacks to be a tool, or None.

    Raises:
        SyntaxError: the file is not Python.
    """
    return {
        node.name: _lack(node)
        for node in _parse(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
    }


def _lack(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """What a function lacks, as far as its text shows."""
    if not ast.get_docstring(function):
        return "has no docstring"
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.annotation is None and not is_filled_elsewhere(each.arg):
            return f"parameter {each.arg!r} has no type hint"
    return "has no hint for its result" if function.returns is None else None


def line_of(file: Path, variable: str) -> int | None:
    """The line of a file that assigns or imports a variable of the module last."""
    line = None
    for node in _body(file):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {each.asname or each.name for each in node.names}
        if variable in names:
            line = node.lineno
    return line


def _body(file: Path) -> list[ast.stmt]:
    try:
        return _parse(file)
    except SyntaxError:
        return []


def _parse(file: Path) -> list[ast.stmt]:
    """The statements of a file; none where it cannot be read.

    Raises:
        SyntaxError: it is not Python.
    """
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, ValueError, RecursionError, MemoryError):
        return []
