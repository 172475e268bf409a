"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class ChatConfig(AppConfig):
    """Turns over HTTP: the face of mochi_server.chat."""

    name = "chat"
