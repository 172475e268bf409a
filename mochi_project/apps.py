"""The project as an app: its checks and its commands."""

from __future__ import annotations

from django.apps import AppConfig


class MochiProjectConfig(AppConfig):
    """Registers the system checks (docs/reference/checks.md)."""

    name = "mochi_project"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415 - registers them
