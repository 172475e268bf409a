"""Starts commands with limits alone: it confines nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

from .base import WORKSPACE, Sandbox, SandboxCommand, SandboxSpec
from .launch import environment_of, launch


class ProcessSandbox(Sandbox):
    """Limits memory, processes, files, time and output; a command may do what the server may.

    Paths inside are those outside. A folder at ``/workspace`` is the working directory instead.
    """

    name = "process"
    confines = False

    async def problem(self) -> str | None:
        return None if sys.platform == "linux" else "limits of processes need Linux"

    def command(self, argv: Sequence[str], spec: SandboxSpec) -> SandboxCommand:
        environment = dict(environment_of(spec))
        if environment["HOME"] == str(WORKSPACE):
            environment["HOME"] = self._outside(spec, WORKSPACE)
        program = shutil.which(argv[0], path=environment["PATH"]) or argv[0]
        workdir = self._outside(spec, spec.workdir or PurePosixPath("/tmp"))  # noqa: S108
        return launch(
            "process",
            [program, *argv[1:]],
            spec,
            interpreter=sys.executable,
            client_environment=environment,
            workdir=workdir,
        )

    @staticmethod
    def _outside(spec: SandboxSpec, path: PurePosixPath) -> str:
        """Return the path on this machine of a path inside."""
        for folder in spec.folders:
            if path == folder.target or folder.target in path.parents:
                return str(folder.path / path.relative_to(folder.target))
        return str(path)
