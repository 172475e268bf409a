"""Sandboxes: a command of somebody else's runs with few rights, and within limits."""

from .base import WORKSPACE, Sandbox, SandboxCommand, SandboxFolder, SandboxLimits, SandboxSpec
from .drivers import SandboxName, make_sandbox

__all__ = [
    "WORKSPACE",
    "Sandbox",
    "SandboxCommand",
    "SandboxFolder",
    "SandboxLimits",
    "SandboxName",
    "SandboxSpec",
    "make_sandbox",
]
