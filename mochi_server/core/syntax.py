"""Python source code that several threads read."""

from __future__ import annotations

import ast
from threading import Lock

_ONE_AT_A_TIME = Lock()


def parse_python(source: str | bytes) -> list[ast.stmt]:
    """Return the statements of Python source code.

    CPython 3.11 counts how deep all threads are together, and fails with a ``SystemError`` where
    two of them parse at once (https://github.com/python/cpython/issues/106905).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As :func:`ast.parse` does.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source).body
