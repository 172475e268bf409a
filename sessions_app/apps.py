"""The sessions as an app: its models are those of a database."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.conf import settings


class SessionsConfig(AppConfig):
    """Imports the models, and what they need of Django, only where there is a database."""

    name = "sessions_app"

    def import_models(self) -> None:
        if settings.DATABASES:
            super().import_models()
        else:
            self.models = apps.all_models[self.label]
