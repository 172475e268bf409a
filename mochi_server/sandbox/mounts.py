"""The mounts of a sandbox that is being made: of what was opened, whatever a name means by now.

A command of another sandbox may write where a folder of this one lies, and can put a link in the
place of a folder at any moment. So what bubblewrap has mounted by its name is compared with what
was opened before, and what lies inside of such a folder is mounted here, by descriptor.

Like :mod:`.launcher`, whose process runs it, it uses the standard library alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

NEW_ROOT: Final = "newroot"
"""Where bubblewrap makes the root of a sandbox, before that becomes the root."""
PLACE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
GUARDED: Final = ("hooks", "config")
"""What git would run later, outside of the sandbox, or would read which programs to run from."""

GET_OWNER: Final = 0xB701
"""NS_GET_USERNS: the user namespace that a namespace belongs to."""
NEW_USER, NEW_MOUNTS = 0x10000000, 0x20000
"""Kinds of namespaces."""
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
"""System calls, on all machines."""
CLONE, RECURSIVE, EMPTY_PATH = 1, 0x8000, 0x1000
FROM_AND_TO_EMPTY_PATHS: Final = 0x44
READ_ONLY: Final = 1


class Replaced(Exception):
    """Something else was mounted than what was opened."""


def open_place(path: str, root: str = "/") -> int:
    """Open a path below a root; no part of it may be a link, however it changes meanwhile."""
    place = os.open(root, PLACE | os.O_DIRECTORY)
    for name in filter(None, path.split("/")):
        outer = place
        try:
            place = os.open(name, PLACE, dir_fd=outer)
        finally:
            os.close(outer)
    if stat.S_ISLNK(os.fstat(place).st_mode):
        os.close(place)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return place


class Mounts:
    """What is mounted in a sandbox."""

    def __init__(self, plan: Any, bound: list[tuple[str, str]]) -> None:
        """Open what is to be mounted.

        Args:
            plan: Of the sandbox.
            bound: Paths outside and inside of what bubblewrap mounts.

        Raises:
            OSError: Something is not there, or is reached through a link.
        """
        self._bound = [(open_place(path), inside) for path, inside in bound]
        self._covered = [(open_place(path), inside) for path, inside in plan["covered"]]
        self._inner = plan["inner"]
        self._guarded = plan["guarded"]

    def complete(self, top: int) -> None:
        """Compare the mounts of a process with what was opened, and make those that are missing.

        Args:
            top: The process of bubblewrap that has made its mounts and waits.

        Raises:
            Replaced: Something else was mounted.
            OSError: A mount cannot be made.
        """
        root = f"/proc/{top}/root/{NEW_ROOT}"
        for opened, inside in self._bound:
            if not os.path.samestat(os.fstat(opened), status_of(inside, root)):
                raise Replaced(inside)
        for opened, inside in self._covered:
            if os.fstat(opened).st_dev == status_of(inside, root).st_dev:
                raise Replaced(inside)
        for opened, _ in (*self._bound, *self._covered):
            os.close(opened)
        if self._inner or any(open_repositories(self._guarded, root)):
            run_in_namespaces(top, self._mount_inner)

    def _mount_inner(self) -> None:
        root = f"/{NEW_ROOT}"
        for path, is_writable in self._inner:
            os.close(mount_again(open_place(path, root), read_only=not is_writable))
        for repository in open_repositories(self._guarded, root):
            guard(repository)


def status_of(path: str, root: str) -> os.stat_result:
    try:
        place = open_place(path, root)
    except OSError as error:
        raise Replaced(path) from error
    try:
        return os.fstat(place)
    finally:
        os.close(place)


def open_repositories(folders: list[str], root: str) -> Iterator[int]:
    """Open the folders ``.git``, of those that have one."""
    for folder in folders:
        try:
            place = open_place(f"{folder}/.git", root)
        except OSError:  # there is none, or a link
            continue
        if stat.S_ISDIR(os.fstat(place).st_mode):
            yield place


def guard(repository: int) -> None:
    """Keep what git would run later, outside of the sandbox, from being written.

    The folder ``.git`` is a mount of its own, so that it cannot be renamed either.
    """
    mounted = mount_again(repository, read_only=False)
    for name in GUARDED:
        try:
            place = os.open(name, PLACE, dir_fd=mounted)
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(os.fstat(place).st_mode):
            mount_again(place, read_only=True)


def mount_again(place: int, *, read_only: bool) -> int:
    """Mount what was opened in its own place, and return it opened as a mount."""
    flags = os.O_CLOEXEC | CLONE | EMPTY_PATH | RECURSIVE
    mounted = call(OPEN_TREE, place, b"", flags)
    set_and_cleared = (READ_ONLY, 0) if read_only else (0, READ_ONLY)
    attributes = struct.pack("=4Q", *set_and_cleared, 0, 0)
    flags = EMPTY_PATH | (RECURSIVE if read_only else 0)
    call(MOUNT_SETATTR, mounted, b"", flags, attributes, len(attributes))
    call(MOVE_MOUNT, mounted, b"", place, b"", FROM_AND_TO_EMPTY_PATHS)
    return mounted


def run_in_namespaces(top: int, action: Callable[[], None]) -> None:
    """Run an action in a process that has all rights over the mounts of another one.

    Raises:
        OSError: It failed.
    """
    pid = os.fork()
    if pid == 0:
        failure = errno.EIO
        try:
            mounts = os.open(f"/proc/{top}/ns/mnt", os.O_RDONLY)
            enter(fcntl.ioctl(mounts, GET_OWNER), NEW_USER)
            enter(mounts, NEW_MOUNTS)
            action()
            failure = 0
        except OSError as error:
            failure = error.errno or failure
        finally:
            os._exit(failure)
    failure = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if failure:
        is_old = failure == errno.ENOSYS
        raise OSError(failure, "Linux 5.12 is needed" if is_old else os.strerror(failure))


def enter(namespace: int, kind: int) -> None:
    checked(libc().setns(namespace, kind))


def call(number: int, *arguments: int | bytes) -> int:
    """Make a system call."""
    return checked(libc().syscall(number, *arguments))


def libc() -> Any:
    import ctypes  # noqa: PLC0415 - slow

    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return the result of a call of the C library, or raise its error."""
    import ctypes  # noqa: PLC0415 - slow

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
