"""Chooses the driver that ``MOCHI_SANDBOX`` names."""

from __future__ import annotations

from typing import Literal

from .base import Sandbox
from .bubblewrap import BubblewrapSandbox
from .docker import DockerSandbox
from .process import ProcessSandbox

SandboxName = Literal["bubblewrap", "docker", "process"]


def make_sandbox(name: Literal["auto"] | SandboxName) -> Sandbox:
    """Return the driver of a name, not tried; ``auto`` is bubblewrap, whether it works or not."""
    match name:
        case "auto" | "bubblewrap":
            return BubblewrapSandbox()
        case "docker":
            return DockerSandbox()
        case "process":
            return ProcessSandbox()
