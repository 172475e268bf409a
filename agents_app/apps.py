"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """Agents over HTTP and on the command line: the face of mochi_server.agents."""

    name = "agents_app"

    def ready(self) -> None:
        """Bring the check in."""
        from . import checks  # noqa: F401, PLC0415 - registers it
