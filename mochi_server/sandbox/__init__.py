"""Sandboxes: a command of somebody else's runs with few rights, and within limits."""

from .base import WORKSPACE, Sandbox, SandboxCommand, SandboxFolder, SandboxLimits, SandboxSpec
from .drivers import SandboxChoice, SandboxName, choose_sandbox, make_sandbox

__all__ = [
    "WORKSPACE",
    "Sandbox",
    "SandboxChoice",
    "SandboxCommand",
    "SandboxFolder",
    "SandboxLimits",
    "SandboxName",
    "SandboxSpec",
    "choose_sandbox",
    "make_sandbox",
]
