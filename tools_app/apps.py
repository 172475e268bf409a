"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class ToolsConfig(AppConfig):
    """Tools over HTTP and on the command line: the face of mochi_server.tools."""

    name = "tools_app"

    def ready(self) -> None:
        """Bring the check in."""
        from . import checks  # noqa: F401, PLC0415 - registers it
