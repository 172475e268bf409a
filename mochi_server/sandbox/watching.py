"""Looks at what the processes of a command use, and ends them where that is more than allowed.

It uses the standard library alone, as the launcher does, in whose process it runs.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from typing import Any, Final

    Limits = dict[str, Any]
else:
    import _signal as signal  # importing signal, typing or json takes longer than bubblewrap

LOOK_SECONDS: Final = 0.05
"""Pause between two looks at processes and memory."""
DISK_PAUSES: Final = 20
"""A look at the folders is followed by a pause of that many times the CPU time that it took."""
READABLE: Final = 0o500
"""Mode of a folder that its owner can list and enter."""
MAX_DEPTH: Final = 128
"""Folders in folders that are looked into; a tree that is deeper is too large."""
MIN_FREE: Final = 0.03
"""Part of a disk that is left free, whoever has filled it."""
NO_LIMIT: Final = float("inf")
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OverLimit(Exception):
    """A limit is exceeded; the text says which."""


def say(text: str) -> None:
    os.write(2, f"sandbox: {text}\n".encode())


def children(pid: int) -> Iterator[int]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", 0) as file:
                # One page: the whole of a fork bomb grows while it is read.
                yield from map(int, file.read(4096).rpartition(b" ")[0].split())
    except OSError:  # it has ended
        pass


def descendants(pid: int, most: int) -> list[int]:
    """Return processes below a process, of which one more than ``most`` is enough."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) <= most:
        for child in children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def threads(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def memory(pid: int) -> int:
    """Return the bytes of memory of a process that are not of files, with its page tables."""
    kilobytes = 0
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(("RssAnon:", "RssShmem:", "VmPTE:")):
                    kilobytes += int(line.split()[1])
    except OSError:
        pass
    return kilobytes * 1024


def unnamed_files(pids: list[int], devices: set[int]) -> int:
    """Return the bytes of files that have no name any more, or never had one.

    Args:
        pids: Processes that have them open or mapped.
        devices: Of the mapped ones.
    """
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                status = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if not status.st_nlink and stat.S_ISREG(status.st_mode):
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
        for file, size in mapped_files(pid):
            if file[0] in devices:
                sizes[file] = max(size, sizes.get(file, 0))
    return sum(sizes.values())


def mapped_files(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield device and inode of the deleted files that a process has mapped, and their bytes.

    Only root may know the size: for others it is as far as the file is mapped.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = [line.split() for line in file if line.endswith(b" (deleted)\n")]
    except OSError:
        return
    for part, _, offset, device, inode, *_ in lines:
        major, _, minor = device.partition(b":")
        try:
            size = os.stat(f"/proc/{pid}/map_files/{part.decode()}").st_blocks * 512
        except OSError:
            begin, _, end = part.partition(b"-")
            size = int(offset, 16) + int(end, 16) - int(begin, 16)
        yield (os.makedev(int(major, 16), int(minor, 16)), int(inode)), size


def usage(folder: int, most_files: float) -> tuple[int, int]:
    """Return bytes and number of the files of an opened folder; links are not followed.

    Raises:
        OverLimit: There are more files, folders nested too deeply, or the folder is gone.
    """
    status = os.fstat(folder)
    if not status.st_nlink:
        raise OverLimit("a writable folder is gone")
    if not stat.S_ISDIR(status.st_mode):
        return status.st_blocks * 512, 1
    make_usable(folder)
    stack = [os.open(".", FOLDER, dir_fd=folder)]
    size, count, inner = entries_of(stack[-1])
    waiting = [inner]
    try:
        while stack:
            if not waiting[-1]:
                waiting.pop()
                os.close(stack.pop())
                continue
            if count > most_files:
                raise OverLimit(f"more than {most_files:,} files")
            if len(stack) > MAX_DEPTH:
                raise OverLimit(f"folders nested deeper than {MAX_DEPTH}")
            try:
                stack.append(enter(waiting[-1].pop(), stack[-1]))
            except OSError:  # removed or replaced meanwhile
                continue
            more, number, inner = entries_of(stack[-1])
            size, count = size + more, count + number
            waiting.append(inner)
    finally:
        for number in stack:
            os.close(number)
    return size, count


def make_usable(folder: int) -> None:
    """Open a folder again that a command, whose user it belongs to, has closed (``chmod 0``)."""
    status = os.fstat(folder)
    is_closed = status.st_mode & READABLE != READABLE and status.st_uid == os.getuid()
    if is_closed and stat.S_ISDIR(status.st_mode):
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(status.st_mode) | stat.S_IRWXU)


def entries_of(folder: int) -> tuple[int, int, list[str]]:
    """Return bytes and number of a folder's entries, and the names of its folders."""
    size = count = 0
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            count += 1
            try:
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
            except OSError:  # removed meanwhile
                continue
    return size, count, inner


def enter(name: str, parent: int) -> int:
    """Open a folder, also one that its owner has made unreadable."""
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except PermissionError:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if not stat.S_ISDIR(os.fstat(held).st_mode):
                raise
            os.chmod(f"/proc/self/fd/{held}", 0o700)
        finally:
            os.close(held)
        return os.open(name, FOLDER, dir_fd=parent)


def files_in_memory(top: int, folder: str) -> int:
    """Return the number of files in a folder of a sandbox that is in memory.

    None while bubblewrap has not changed the root of its process, whose folder is the machine's.
    """
    inside = f"/proc/{top}/root{folder}"
    try:
        if os.path.exists(folder) and os.stat(inside).st_dev == os.stat(folder).st_dev:
            return 0
        state = os.statvfs(inside)
    except OSError:
        return 0
    return state.f_files - state.f_ffree


class DiskWatch:
    """The writable folders of a command, which are opened, and those in memory."""

    def __init__(self, top: int, folders: list[int], in_memory: list[str], limits: Limits) -> None:
        self._top = top
        self._folders = folders
        self._devices = {os.fstat(folder).st_dev for folder in folders}
        self._in_memory = in_memory
        self._limits = limits
        self._allowed = (limits["disk_bytes"] or NO_LIMIT, limits["files"])
        """Bytes and files; what was there at the start, if that is more."""
        self._free = {folder: os.statvfs(folder).f_bavail for folder in folders}
        self._next = 0.0
        try:
            size, count = self._usage(NO_LIMIT)
        except OverLimit:
            return
        self._allowed = (max(size, self._allowed[0]), max(count, self._allowed[1]))

    def _usage(self, most_files: float) -> tuple[int, int]:
        sizes = [usage(folder, most_files) for folder in self._folders]
        return sum(size for size, _ in sizes), sum(count for _, count in sizes)

    def look(self, pids: list[int]) -> None:
        """Raise OverLimit if more is used than allowed."""
        if time.monotonic() < self._next:
            return
        began = time.thread_time()
        most, most_files = self._allowed
        try:
            size, count = self._usage(most_files)
            if size + unnamed_files(pids, self._devices) > most:
                raise OverLimit(f"more than {most / 1e6:,.0f} MB in the writable folders")
            count += sum(files_in_memory(self._top, folder) for folder in self._in_memory)
            if count > most_files:
                raise OverLimit(f"more than {most_files:,} files")
            self._check_free()
        finally:
            took = time.thread_time() - began
            self._next = time.monotonic() + max(LOOK_SECONDS, took * DISK_PAUSES)

    def _check_free(self) -> None:
        for folder in self._folders:
            state = os.statvfs(folder)
            taken = (self._free[folder] - state.f_bavail) * state.f_frsize
            if state.f_bavail < state.f_blocks * MIN_FREE and taken > self._limits["disk_bytes"]:
                raise OverLimit("the disk is nearly full")


class Watch:
    """The limits of all processes of a command, together."""

    def __init__(self, top: int, folders: list[int], in_memory: list[str], limits: Limits) -> None:
        self._top = top
        """The process above all of them, which is not one of the command's."""
        self._main: int | None = None
        self._limits = limits
        self._disk = DiskWatch(top, folders, in_memory, limits)
        self._relieved = -NO_LIMIT
        self._killed: set[int] = set()
        """Processes that may take a moment to end."""

    def look(self) -> None:
        """Check the limits. At the first excess end all processes but the first, then all.

        So a server goes on after a command that it has run went too far.

        Raises:
            OverLimit: All must end.
        """
        most = self._limits["processes"]
        pids = [pid for pid in descendants(self._top, 4 * most) if pid not in self._killed]
        if self._main is None and pids:
            self._main = pids[0]
        try:
            self._check(pids, most)
        except OverLimit as over:
            others = [pid for pid in pids if pid != self._main]
            recently = time.monotonic() < self._relieved + 1
            if not others or recently or len(others) > 2 * most:
                raise
            say(f"{over}; the processes that it has started are ended")
            self._relieved = time.monotonic()
            self._killed = set(others)
            for pid in others:
                kill(pid)

    def _check(self, pids: list[int], most: int) -> None:
        if sum(map(threads, pids)) > most + 1:
            raise OverLimit(f"more than {most} processes")
        allowed = self._limits["memory_bytes"]
        if sum(map(memory, pids)) > allowed:
            raise OverLimit(f"more than {allowed / 1e6:,.0f} MB of memory")
        self._disk.look(pids)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
