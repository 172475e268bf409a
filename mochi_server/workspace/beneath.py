"""Open files below a folder, whatever the folder contains and whoever changes it meanwhile.

The kernel's ``openat2`` resolves a path without a way out. Where it is missing, ``walk_beneath``
does the same with one ``openat`` for each component. Neither compares names: what was opened is
what was checked.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import sys
from collections import deque
from functools import lru_cache

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_DEPTH = 64
"""Most folders between the folder and a file; each is a handle while a path is walked."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags that open a folder."""

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags that open for reading, and neither wait for a pipe nor take a terminal."""

_MAX_LINKS = 40  # as the kernel
_OPENAT2 = 437
_MACHINES = frozenset({"x86_64", "aarch64"})
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_ATTEMPTS = 16
"""Calls of ``openat2`` that a rename elsewhere may spoil before the path is walked."""


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def components(path: str) -> list[str]:
    """Return the components of a relative path; an empty list is the folder itself.

    Raises:
        OSError: the path is absolute (EXDEV), too long or too deep (ENAMETOOLONG), or contains a
            character that no name can have (EINVAL).
    """
    if path.startswith("/"):
        raise OSError(errno.EXDEV, "The path is absolute", path)
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "The path is not Unicode", path) from None
    if "\0" in path:
        raise OSError(errno.EINVAL, "The path contains a NUL character", path)
    parts = [part for part in path.split("/") if part not in {"", "."}]
    too_long = any(len(part.encode()) > MAX_NAME_BYTES for part in parts)
    if size > MAX_PATH_BYTES or too_long or len(parts) > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, "The path is too long", path)
    return parts


def open_beneath(root: int, path: str, flags: int) -> int:
    """Open a path below an open folder, and return its handle.

    Links and ``..`` are followed as long as they do not lead out of the folder. The path may be
    empty, which is the folder; ``flags`` are as of ``os.open``.

    Raises:
        OSError: As of ``os.open``; EXDEV if the path leads out of the folder.
    """
    parts = components(path)
    if has_openat2():
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(BlockingIOError):
                return _openat2(root, "/".join(parts) or ".", flags)
    return walk_beneath(root, path, flags)


@lru_cache(maxsize=1)
def has_openat2() -> bool:
    """Return whether this kernel has ``openat2`` and allows it."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    try:
        os.close(_openat2(-100, ".", FOLDER))  # AT_FDCWD
    except OSError:  # an old kernel, or a seccomp filter
        return False
    return True


def _openat2(root: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    handle: int = _libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if handle < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return handle


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def walk_beneath(root: int, path: str, flags: int) -> int:
    """Do what ``open_beneath`` does, on any system: open one component after the other.

    The handles of the folders on the way are kept, so that ``..`` is the folder that the walk came
    from, and not what a rename has made of it.
    """
    todo = deque(components(path) or ["."])
    way: list[int] = []
    links = 0
    try:
        while True:
            here, name = way[-1] if way else root, todo.popleft()
            if name == "..":
                if not way:
                    raise OSError(errno.EXDEV, "The path leads out of the folder", path)
                os.close(way.pop())
                todo = todo or deque(["."])
                continue
            try:
                handle = os.open(
                    name, (flags if not todo else FOLDER) | os.O_NOFOLLOW, 0, dir_fd=here
                )
            except OSError as error:
                target = _link_target(here, name, error)
                if not todo and flags & os.O_NOFOLLOW:
                    raise OSError(errno.ELOOP, "The path is a link", path) from None
                links += 1
                todo.extendleft(reversed(_link_components(target, path, links)))
                todo = todo or deque(["."])
                continue
            if not todo:
                return handle
            way.append(handle)
            if len(way) > 2 * MAX_DEPTH:
                raise OSError(errno.ENAMETOOLONG, "The path is too long", path)
    finally:
        for handle in way:
            os.close(handle)


def _link_target(folder: int, name: str, error: OSError) -> str:
    """Return where a link leads; raise the error of opening it if it is no link."""
    if error.errno not in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
        raise error
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        raise error from None


def _link_components(target: str, path: str, links: int) -> list[str]:
    if links > _MAX_LINKS:
        raise OSError(errno.ELOOP, "Too many links", path)
    if target.startswith("/"):
        raise OSError(errno.EXDEV, "A link leads out of the folder", path)
    return [part for part in target.split("/") if part not in {"", "."}]
