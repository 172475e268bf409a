"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """The face of mochi_server.agents; agents have no routes yet."""

    name = "agents_app"
