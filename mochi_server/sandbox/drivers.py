"""Chooses the driver that ``MOCHI_SANDBOX`` names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base import Sandbox
from .bubblewrap import BubblewrapSandbox
from .docker import DockerSandbox
from .process import ProcessSandbox

SandboxName = Literal["bubblewrap", "docker", "process"]


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The driver to use, or why there is none."""

    sandbox: Sandbox | None
    problem: str | None = None


def make_sandbox(name: SandboxName) -> Sandbox:
    """Return the driver of a name, tried or not."""
    match name:
        case "bubblewrap":
            return BubblewrapSandbox()
        case "docker":
            return DockerSandbox()
        case "process":
            return ProcessSandbox()


async def choose_sandbox(setting: Literal["auto"] | SandboxName) -> SandboxChoice:
    """Try the driver of a setting; ``auto`` is bubblewrap. Another one never takes its place."""
    sandbox = make_sandbox("bubblewrap" if setting == "auto" else setting)
    problem = await sandbox.problem()
    return SandboxChoice(sandbox if problem is None else None, problem)
