"""Search the files of a workspace: a program of its own, which can be ended in mid-pattern.

A regular expression may take for ever, and cannot be interrupted in a thread.
``python -m mochi_server.workspace.search FOLDER QUERY`` prints the lines found as it goes.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from .beneath import components
from .content import is_binary, printable
from .folder import ROOT, WorkspaceFolder
from .globs import matches

SECONDS = 10
"""Longest search."""

MOST_MATCHES = 200
MOST_BYTES = 5_000_000
"""Longest file that is searched."""

SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Names of folders that are neither searched nor listed with their contents."""

_MOST_FILES = 50_000
_SEARCHED_CHARACTERS = 10_000
_SHOWN_CHARACTERS = 300

PATTERN_ERROR = 2
"""Exit status of a pattern that is no regular expression."""


def run(folder: WorkspaceFolder, query: dict[str, Any], pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the lines found, as ``path:line: text``, and a note at the end."""
    found = files = left_out = 0
    for path in _files(folder, query["path"], query["glob"]):
        if files == _MOST_FILES:
            yield f"[More than {_MOST_FILES:,} files: the others were not searched.]"
            break
        files += 1
        try:
            content = folder.read(path, MOST_BYTES)
        except OSError:
            left_out += 1
            continue
        if is_binary(content):
            left_out += 1
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            match = pattern.search(line[:_SEARCHED_CHARACTERS])
            if match is None:
                continue
            if found == MOST_MATCHES:
                yield f"[More than {MOST_MATCHES} lines match: the others are not shown.]"
                return
            found += 1
            yield f"{printable(path)}:{number}: {_around(line, match)}"
    if not found:
        yield f"[Nothing found in {files:,} files.]"
    if left_out:
        yield f"[{left_out:,} files were not searched: binary, very long, or no ordinary files.]"


def _files(folder: WorkspaceFolder, path: str, glob: str | None) -> Iterator[str]:
    path = "/".join(components(path))
    try:
        entries = folder.entries(path or ROOT, recursive=True, skipped=SKIPPED)
        first = next(entries, None)
    except NotADirectoryError:
        yield path
        return
    prefix = f"{path}/" if path else ""
    with closing(entries):
        while first is not None:
            name = first.path.removeprefix(prefix)
            if first.kind == "file" and (glob is None or matches(name, glob)):
                yield first.path
            first = next(entries, None)


def _around(line: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - _SHOWN_CHARACTERS // 3)
    text = line[start : start + _SHOWN_CHARACTERS]
    before = "…" if start else ""
    after = "…" if start + _SHOWN_CHARACTERS < len(line) else ""
    return before + printable(text.expandtabs(4).rstrip("\r")) + after


def main() -> int:
    """Search; be killed after the seconds of the query."""
    folder_path, query = sys.argv[1], json.loads(sys.argv[2])
    signal.alarm(query["seconds"])
    text = query["pattern"] if query["regex"] else re.escape(query["pattern"])
    try:
        pattern = re.compile(text, re.IGNORECASE if query["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        print(f"pattern is no regular expression: {error}", file=sys.stderr)  # noqa: T201
        return PATTERN_ERROR
    with WorkspaceFolder(Path(folder_path)) as folder:
        try:
            for line in run(folder, query, pattern):
                print(line, flush=True)  # noqa: T201 - what was found until it is killed
        except OSError as error:
            print(f"{query['path']}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
