"""Remove a folder that a program may have filled on purpose so that it cannot be removed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections import deque

from .beneath import FOLDER

_OWNER = stat.S_IRWXU

_PASSES = 100
"""How often a folder is emptied that another program goes on filling."""

_MOST_FOLDERS = 1_000_000
"""Folders of one pass, for the same reason."""

_NOT_A_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK})


def remove_tree(parent: int, name: str) -> None:
    """Remove a folder and all that it contains; links are removed, not followed.

    Any depth takes a few handles and no recursion: what is found in a folder's folders is moved up
    before it is emptied. Folders without permissions get them.

    Raises:
        OSError: It cannot be removed; ENOTEMPTY if a program fills it faster than it is emptied.
    """
    top = _open(parent, name)
    if top is None:
        return
    try:
        for _ in range(_PASSES):
            folders = deque(_unlink_files(top))
            removed = 0
            while folders and removed < _MOST_FOLDERS:
                folders.extend(_hoist(top, folders.popleft()))
                removed += 1
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                last_error = error
            else:
                return
        raise last_error
    finally:
        os.close(top)


def _unlink_files(folder: int) -> list[str]:
    """Remove all but the folders of a folder, and return the names of those."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders


def _hoist(top: int, name: str) -> list[str]:
    """Remove a folder of ``top``; the folders in it become folders of ``top``, and are returned."""
    handle = _open(top, name)
    if handle is None:
        return []  # no folder any more: the next pass sees what it is
    moved: list[str] = []
    try:
        for folder in _unlink_files(handle):
            new = f".{secrets.token_hex(8)}"
            with contextlib.suppress(OSError):  # it has changed: the next pass tries again
                _allow(handle, folder)  # its ".." changes: it must be writable
                os.rename(folder, new, src_dir_fd=handle, dst_dir_fd=top)
                moved.append(new)
    finally:
        os.close(handle)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _open(parent: int, name: str) -> int | None:
    """Open a folder that is to be emptied; None if it is no folder."""
    try:
        _allow(parent, name)
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_A_FOLDER:
            return None
        raise


def _allow(parent: int, name: str) -> None:
    """Give the owner all permissions of a folder."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or status.st_mode & _OWNER == _OWNER:
        return
    if sys.platform != "linux":
        os.chmod(name, _OWNER, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", _OWNER)  # noqa: PTH101 - as above
    finally:
        os.close(handle)
