"""Confines commands with bubblewrap: namespaces, no capabilities, a filter of system calls."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from ..core.aio import in_thread
from .base import Sandbox, SandboxCommand, SandboxFolder, SandboxSpec, run_trial
from .host import NETWORK_FILES, SYSTEM_FILES, SYSTEM_FOLDERS, interpreter_folders
from .launch import launch
from .seccomp import seccomp_filter

TRIAL_SECONDS = 30.0
USER = 1000
"""Inside, where the server is root."""
DEVICES_MB = 64
"""Size of ``/dev/shm``."""
IN_MEMORY = ["/tmp", "/var/tmp", "/dev/shm"]


class BubblewrapSandbox(Sandbox):
    """Runs commands in namespaces of their own, as ordinary user or as root.

    Args:
        interpreter: Runs the launcher, and is offered inside.
        packages: Folders of the interpreter and its packages that are not below ``/usr``; None for
            those of this process.
    """

    name = "bubblewrap"

    def __init__(
        self, *, interpreter: str = sys.executable, packages: Sequence[Path] | None = None
    ) -> None:
        self._interpreter = interpreter
        self._packages = interpreter_folders() if packages is None else packages
        self._works = False

    async def problem(self) -> str | None:
        if self._works:
            return None
        problem = await in_thread(self._try)
        self._works = problem is None
        return problem

    def _try(self) -> str | None:
        if sys.platform != "linux":
            return "bubblewrap needs Linux"
        if self._program is None:
            return "the program bwrap is not installed (package bubblewrap)"
        command = self.command(["true"], SandboxSpec())
        try:
            reason = run_trial(command.argv, command.env, seconds=TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"bwrap did not start a program within {TRIAL_SECONDS:g} seconds"
        return None if reason is None else f"bwrap cannot make a sandbox here: {reason}"

    def command(self, argv: Sequence[str], spec: SandboxSpec) -> SandboxCommand:
        folders = self._folders(spec)
        inner = [each for each in folders if _is_inner(each, folders, spec.covered)]
        return launch(
            "bubblewrap",
            argv,
            spec,
            interpreter=self._interpreter,
            program=self._program or "bwrap",
            options=[
                *self._namespaces(spec),
                *_system(spec),
                *_devices(spec),
                *_bound([each for each in folders if each not in inner], spec.covered),
            ],
            covered=[(os.path.realpath(path), str(path)) for path in spec.covered],
            inner=[(str(each.target), each.writable) for each in inner],
            guarded=[str(each.target) for each in folders if each.writable],
            files=_files(spec),
            in_memory=IN_MEMORY,
            last_options=_last(spec),
            seccomp=seccomp_filter().hex(),
        )

    @cached_property
    def _program(self) -> str | None:
        return shutil.which("bwrap")

    @cached_property
    def _version(self) -> tuple[int, ...]:
        answer = subprocess.run(  # noqa: S603
            [self._program or "bwrap", "--version"], capture_output=True, check=False, text=True
        )
        return tuple(map(int, re.findall(r"\d+", answer.stdout)[:2]))

    def _namespaces(self, spec: SandboxSpec) -> Iterator[str]:
        yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
        yield "--unshare-cgroup-try"
        if not spec.network:
            yield "--unshare-net"
        if self._version >= (0, 8):  # else the filter of system calls alone does it
            yield "--disable-userns"
        yield from ("--uid", str(os.getuid() or USER), "--gid", str(os.getgid() or USER))
        yield from ("--hostname", "sandbox", "--new-session", "--die-with-parent")
        yield from ("--cap-drop", "ALL", "--clearenv")

    def _folders(self, spec: SandboxSpec) -> list[SandboxFolder]:
        """Return the interpreter's folders and those of the spec, the outer ones first."""
        packages = (
            SandboxFolder(path=path.resolve(), inside=PurePosixPath(path))
            for path in self._packages
        )
        folders = [*packages, *spec.folders]
        covered = set(map(PurePosixPath, spec.covered))
        folders = [folder for folder in folders if folder.target not in covered]
        return sorted(folders, key=lambda folder: len(folder.target.parts))


def _bound(folders: Sequence[SandboxFolder], covered: Sequence[Path]) -> Iterator[str]:
    """Mount folders and cover others, the outer ones first."""
    mounts = [
        (folder.target, "--bind" if folder.writable else "--ro-bind", str(folder.path))
        for folder in folders
    ]
    mounts += [(PurePosixPath(path), "--tmpfs", "") for path in covered]
    for target, option, source in sorted(mounts, key=lambda each: len(each[0].parts)):
        yield from filter(None, (option, source, str(target)))
    for path in covered:
        yield from ("--remount-ro", str(path))


def _is_inner(
    folder: SandboxFolder, others: Sequence[SandboxFolder], covered: Sequence[Path]
) -> bool:
    """Tell whether a folder is seen at its path already, as a part of another one.

    Who may write in that one can change what a path in it means, so it is not mounted by name.
    """
    around = [each for each in others if each.target in folder.target.parents]
    if not around:
        return False
    outer = max(around, key=lambda each: len(each.target.parts))
    if any(
        path.is_relative_to(outer.target) and folder.path.is_relative_to(path) for path in covered
    ):
        return False
    return folder.path == outer.path / folder.target.relative_to(outer.target)


def _system(spec: SandboxSpec) -> Iterator[str]:
    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    for name in (*SYSTEM_FILES, *(NETWORK_FILES if spec.network else ())):
        if os.path.exists(name):
            yield from ("--ro-bind", os.path.realpath(name), name)


def _devices(spec: SandboxSpec) -> Iterator[str]:
    # Read-only: where the server is root, the settings of the kernel in it can be written.
    yield from ("--proc", "/proc")
    for name in _kernel_files():
        yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    # The first process is bubblewrap, which holds the standard output of the command; in the
    # other folder is how much was typed at serial lines, for root alone.
    for folder in ("/proc/1", *filter(os.path.exists, ["/proc/tty/driver"])):
        yield from ("--tmpfs", folder, "--remount-ro", folder)
    yield from ("--remount-ro", "/proc")
    yield from ("--dev", "/dev")
    yield from ("--size", str(DEVICES_MB * 1_000_000), "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev")
    size = int(spec.limits.tmp_mb * 1_000_000)
    for name in ("/tmp", "/var/tmp"):
        yield from ("--size", str(size), "--perms", "1777", "--tmpfs", name)


@cache
def _kernel_files() -> Sequence[str]:
    """Return what only root may read of the kernel in ``/proc``, and its keys.

    Root of a sandbox might else, where the server is root.
    """
    names = ["keys"] if os.path.exists("/proc/keys") else []
    with os.scandir("/proc") as entries:
        for entry in entries:
            is_process = entry.name.isdecimal()
            if not is_process and entry.is_file() and not entry.stat().st_mode & stat.S_IROTH:
                names.append(entry.name)
    return names


def _files(spec: SandboxSpec) -> Mapping[str, str]:
    """Return files that are made for the sandbox."""
    user, group = os.getuid() or USER, os.getgid() or USER
    files = {
        "/etc/passwd": f"sandbox:x:{user}:{group}::/tmp:/bin/sh\n",
        "/etc/group": f"sandbox:x:{group}:\n",
        "/etc/hostname": "sandbox\n",
    }
    if not spec.network:
        files["/etc/hosts"] = "127.0.0.1 localhost sandbox\n::1 localhost\n"
    return files


def _last(spec: SandboxSpec) -> list[str]:
    workdir = str(spec.workdir) if spec.workdir is not None else "/tmp"
    return ["--remount-ro", "/", "--chdir", workdir]
