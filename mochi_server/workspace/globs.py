"""Match paths with patterns such as ``*.py`` and ``src/**/test_*.py``."""

from __future__ import annotations

from fnmatch import fnmatchcase

ANY_FOLDERS = "**"


def matches(path: str, pattern: str) -> bool:
    """Return whether a relative path matches a glob.

    ``*`` and ``?`` match within a name, ``[ab]`` one of the characters, ``**`` any number of
    folders. A pattern without a slash is for the name alone. No pattern takes long: names are
    matched without backtracking, and folders by a table.
    """
    if "/" not in pattern:
        pattern = f"{ANY_FOLDERS}/{pattern}"
    names = path.split("/")
    # reached[n]: the patterns so far match the first n names.
    reached = [True] + [False] * len(names)
    for part in (part for part in pattern.split("/") if part not in {"", "."}):
        if part == ANY_FOLDERS:
            first = reached.index(True) if True in reached else len(reached)
            reached = [number >= first for number in range(len(reached))]
        else:
            reached = [
                number > 0 and reached[number - 1] and fnmatchcase(names[number - 1], part)
                for number in range(len(reached))
            ]
    return reached[-1]
