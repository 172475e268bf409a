"""``mochi-server init``: a data folder with examples of what a user can put there."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..config.installation import own_command
from ..config.settings import STATE
from ..core.files import make_folder, replace_file

_PACKAGE = Path(__file__).parents[1]
_EXAMPLES = (_PACKAGE / "examples", _PACKAGE.parent / "examples" / "data")
"""Folders of the examples: of a wheel, and of a clone."""

_NOT_COPIED = {"__pycache__", ".DS_Store"}


class CannotInitialise(Exception):
    """The folder cannot be made; the text is one line that says why."""


@dataclass(slots=True)
class InitialisedFiles:
    """The files of the examples; paths are relative to the folder."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files that were there before, with whatever they hold."""


def run_init(folder: Path, write: Callable[[str], object]) -> None:
    """Put the examples into a folder; say what was done, and what can be done next.

    Raises:
        CannotInitialise: The folder, or a file in it, cannot be written.
    """
    folder = folder.expanduser()
    files = initialise(folder)
    for path in files.written:
        write(f"wrote {folder / path}\n")
    for path in files.kept:
        write(f"kept {folder / path}, which was there already\n")
    if files.written:
        write(_next_steps(folder))


def initialise(folder: Path) -> InitialisedFiles:
    """Write every example that is not there yet; each file appears whole or not at all.

    Raises:
        CannotInitialise: The folder, or a file in it, cannot be written. What was written so far
            stays, and a second call goes on from there.
    """
    files = InitialisedFiles()
    source = next((place for place in _EXAMPLES if place.is_dir()), None)
    if source is None:
        raise CannotInitialise("This installation lacks the examples; install it anew.")
    state = folder / STATE  # by which a data folder is recognised
    try:
        make_folder(state, private=True)
    except OSError as error:
        raise _refusal(state, error) from error
    # The packages come last: a folder of tools is not loaded before its modules are there.
    for path in sorted(_files(source), key=lambda path: (path.name == "__init__.py", path)):
        place = folder / path.relative_to(source)
        new = _write(place, path.read_bytes())
        (files.written if new else files.kept).append(str(path.relative_to(source)))
    return files


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _NOT_COPIED:
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _write(place: Path, content: bytes) -> bool:
    """Write a file unless something has its name; return whether it was written."""
    if os.path.lexists(place):
        return False
    try:
        replace_file(place, [content], new=True)
    except FileExistsError as error:
        # The same error says that a folder cannot be made where a file is.
        if not place.parent.is_dir():
            raise _refusal(place, error) from error
        return False
    except OSError as error:
        raise _refusal(place, error) from error
    return True


def _refusal(place: Path, error: OSError) -> CannotInitialise:
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        blocking = next(path for path in place.parents if os.path.lexists(path))
        return CannotInitialise(f"{blocking} is not a folder.")
    return CannotInitialise(f"{place} cannot be written: {error.strerror}.")


def _next_steps(folder: Path) -> str:
    return (
        "Next:\n"
        f"  {own_command()} --data-dir {shlex.quote(str(folder))}\n"
        "  curl localhost:8000/api/v1/tools    # what a session can offer to its model\n"
        f"Change and delete what you like. Put tools of your own into a folder in "
        f"{folder / 'tools'}, with an __init__.py, which may be empty.\n"
    )
