"""The folder that all processes share which use a model."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def run_folder(models: Path) -> Path:
    """Return the folder for locks and state of the models in ``models``; made if need be.

    ``.run`` beside the models, or where those may only be read, a folder in the user's cache, or
    else one in the temporary folder. Every process of a user finds the same one.

    Raises:
        OSError: none of them can be written.
    """
    beside, cached = models / ".run", user_cache_path("mochi-server") / "run"
    for folder in (beside, cached):
        if _is_writable(folder):
            return folder
    last = Path(tempfile.gettempdir()) / f"mochi-server-{os.getuid()}"
    if own_folder(last):
        return last
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(last))


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def own_folder(folder: Path) -> bool:
    """Return whether a folder is this user's alone, made if need be; others may write beside it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    private = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private
