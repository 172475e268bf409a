"""Tells Django about the app."""

from __future__ import annotations

from django.apps import AppConfig


class PromptsConfig(AppConfig):
    """System prompt files over HTTP: the face of mochi_server.services.system_prompts."""

    name = "prompts_app"
