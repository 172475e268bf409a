"""Starts confined commands, also as an ordinary user where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sandbox import Sandbox, SandboxCommand, SandboxSpec
from mochi_server.sandbox.bubblewrap import BubblewrapSandbox
from mochi_server.sandbox.launch import LAUNCHER

ORDINARY = 54_321
"""User and group of nobody else."""
SECONDS = 100.0


@dataclass(frozen=True, slots=True)
class SandboxUser:
    """A driver, and the user that starts its commands."""

    sandbox: Sandbox
    folder: Path
    """Writable for that user."""
    python: str = sys.executable
    options: Any = None
    """Of ``subprocess``."""
    launcher: str = str(LAUNCHER.parent)

    def command(self, argv: Sequence[str], spec: SandboxSpec) -> SandboxCommand:
        made = self.sandbox.command(argv, spec)
        argv = [self.launcher if word == str(LAUNCHER.parent) else word for word in made.argv]
        return SandboxCommand(argv=argv, env=made.env)

    def start(self, argv: Sequence[str], spec: SandboxSpec, **options: Any) -> subprocess.Popen:
        made = self.command(argv, spec)
        options = {"stdin": subprocess.DEVNULL, **(self.options or {}), **options}
        return subprocess.Popen(made.argv, env=made.env, **options)

    def run(
        self, argv: Sequence[str], spec: SandboxSpec | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        pipe = subprocess.PIPE
        options = {"stdout": pipe, "stderr": pipe, "text": True, **options}
        started = self.start(argv, spec or SandboxSpec.of_workspace(self.folder), **options)
        try:
            out, err = started.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            raise
        return subprocess.CompletedProcess(argv, started.returncode, out, err)


def as_this_user(sandbox: Sandbox, tmp_path: Path) -> SandboxUser:
    folder = tmp_path / "folder"
    folder.mkdir()
    return SandboxUser(sandbox, folder)


def as_ordinary_user(place: Path) -> SandboxUser:
    """Return bubblewrap as used by somebody who is not root; skip where that cannot be tried."""
    if os.getuid():
        pytest.skip("this is an ordinary user")
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("no interpreter that another user can run")
    place.chmod(0o755)
    for name in ("launcher.py", "mounts.py", "watching.py"):
        shutil.copy(LAUNCHER.with_name(name), place)
        (place / name).chmod(0o644)
    folder = place / "ordinary"
    folder.mkdir()
    os.chown(folder, ORDINARY, ORDINARY)
    sandbox = BubblewrapSandbox(interpreter=python, packages=())
    options = {"user": ORDINARY, "group": ORDINARY, "extra_groups": (), "cwd": "/"}
    return SandboxUser(sandbox, folder, python, options, str(place))


def bubblewrap_or_skip() -> BubblewrapSandbox:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return BubblewrapSandbox()
