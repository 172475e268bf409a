"""The project as an app: its checks and its commands."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import CheckMessage, register


class MochiProjectConfig(AppConfig):
    """Registers the system checks (docs/reference/checks.md)."""

    name = "mochi_project"

    def ready(self) -> None:
        register(check)


def check(**options: object) -> list[CheckMessage]:
    """Run the checks; only what runs them imports them."""
    from .checks import CHECKS  # noqa: PLC0415 - with the whole library

    return [message for each in CHECKS for message in each(**options)]
