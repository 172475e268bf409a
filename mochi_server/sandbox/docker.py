"""Confines commands in containers of Docker or Podman, which end with the command."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from ..config import child_environment
from ..core.aio import in_thread
from .base import Sandbox, SandboxCommand, SandboxSpec, run_trial
from .launch import environment_of, launch

TRIAL_SECONDS = 10.0
PROGRAMS = ("docker", "podman")
LABEL = "mochi-server=sandbox"
DEFAULT_IMAGE = "mochi-server-sandbox"


class DockerSandbox(Sandbox):
    """Runs each command in a container of its own, from an image with an interpreter.

    Args:
        image: Name of an image that is here already; it is never fetched.
        program: The command line of Docker or Podman; None for the first that is in ``PATH``.
    """

    name = "docker"

    def __init__(self, *, image: str = DEFAULT_IMAGE, program: str | None = None) -> None:
        self._image = image
        self._given_program = program

    async def problem(self) -> str | None:
        return await in_thread(self._try)

    def _try(self) -> str | None:
        if self._program is None:
            return "neither docker nor podman is installed"
        name = Path(self._program).name
        argv = [self._program, "image", "inspect", "--format", "{{.Id}}", self._image]
        try:
            reason = run_trial(argv, child_environment(), seconds=TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"{name} did not answer within {TRIAL_SECONDS:g} seconds"
        except OSError as error:
            return f"{name} cannot be started: {error.strerror}"
        return None if reason is None else f"{name} has no image {self._image!r}: {reason}"

    @cached_property
    def _program(self) -> str | None:
        names = PROGRAMS if self._given_program is None else (self._given_program,)
        return next(filter(None, map(shutil.which, names)), None)

    def command(self, argv: Sequence[str], spec: SandboxSpec) -> SandboxCommand:
        """See the base class; ``sys.executable`` becomes ``python3`` of the image.

        Raises:
            ValueError: The spec has open files, or a value with a line break, which a container
                cannot be given.
        """
        if spec.keep_fds:
            raise ValueError("a container cannot be given open files")
        lines = [f"{name}={value}" for name, value in environment_of(spec).items()]
        if any("\n" in line for line in lines):
            raise ValueError("a container cannot be given a variable with a line break")
        program = self._program or PROGRAMS[0]
        name = f"mochi-{secrets.token_hex(8)}"
        inside = ["python3" if argv[0] == sys.executable else argv[0], *argv[1:]]
        return launch(
            "docker",
            [self._image, *inside],
            spec,
            interpreter=sys.executable,
            program=program,
            options=["run", "--name", name, *_options(spec, Path(program).name)],
            remove=[program, "rm", "--force", "--volumes", name],
            variables="".join(f"{line}\n" for line in lines),
            client_environment=child_environment(),
        )


def _options(spec: SandboxSpec, program: str) -> Iterator[str]:
    limits = spec.limits
    memory = f"{int(limits.memory_mb * 1_000_000)}b"
    yield from ("--rm", "--interactive", "--init", "--pull", "never", "--label", LABEL)
    yield from ("--hostname", "sandbox", "--user", f"{os.getuid()}:{os.getgid()}")
    if program == "podman" and os.getuid():
        yield from ("--userns", "keep-id")
    if not spec.network:
        yield from ("--network", "none")
    yield from ("--memory", memory, "--memory-swap", memory, "--cpus", f"{limits.cpus:g}")
    yield from ("--pids-limit", str(limits.processes))
    yield from ("--ulimit", f"nofile={limits.open_files}:{limits.open_files}")
    yield from ("--ulimit", "core=0:0")
    if limits.file_mb is not None:
        size = int(limits.file_mb * 1_000_000)
        yield from ("--ulimit", f"fsize={size}:{size}")
    if limits.cpu_seconds is not None:
        yield from ("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds}")
    yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only")
    tmp = int(limits.tmp_mb * 1_000_000)
    yield from ("--tmpfs", f"/tmp:rw,nosuid,nodev,size={tmp},mode=1777")
    for folder in sorted(spec.folders, key=lambda each: len(each.target.parts)):
        options = f"type=bind,source={folder.path},target={folder.target}"
        yield from ("--mount", options if folder.writable else f"{options},readonly")
    workdir = str(spec.workdir) if spec.workdir is not None else "/tmp"
    yield from ("--workdir", workdir)
