"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class ToolsConfig(AppConfig):
    """The face of mochi_server.tools; tools have no routes yet."""

    name = "tools_app"
