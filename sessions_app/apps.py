"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sessions over HTTP: the face of mochi_server.sessions."""

    name = "sessions_app"
