"""Disks that are full, or that nobody may write, and processes with no more room for files."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mochi_server.core.parsed_file import is_steady


@contextmanager
def at_most(kind: int, most: int) -> Iterator[None]:
    """Let this process have no more of a resource, one of ``resource.RLIMIT_…``."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def full_disk() -> AbstractContextManager[None]:
    """Let every write to a file fail."""
    return at_most(resource.RLIMIT_FSIZE, 0)


def little_room(size: int) -> AbstractContextManager[None]:
    """Let no file grow beyond this size; a write may put a part of its bytes there."""
    return at_most(resource.RLIMIT_FSIZE, size)


def wait_for_tick(path: Path) -> None:
    """Return when the next change of a file will show as another time."""
    while not is_steady(path.lstat().st_ctime_ns):
        time.sleep(0.01)


def no_more_files(path: Path) -> AbstractContextManager[None]:
    """Let this process open no file, from when a change of this one will show on."""
    wait_for_tick(path)
    return at_most(resource.RLIMIT_NOFILE, 0)


@dataclass
class SmallDisk:
    """A file system of its own."""

    folder: Path

    def fill(self) -> None:
        """Leave no room."""
        with suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def allow_writing(self, *, allowed: bool) -> None:
        mode = "rw" if allowed else "ro"
        command = ["mount", "-o", f"remount,{mode}", self.folder]
        subprocess.run(command, check=True, timeout=100)


def may_mount() -> bool:
    """Return whether this process may make a ``SmallDisk``."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    return os.geteuid() == 0 and subprocess.run(command, check=False, timeout=100).returncode == 0


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A disk until the block ends; nobody may use it then."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    subprocess.run(command, check=True, timeout=100)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True, timeout=100)
