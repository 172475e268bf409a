"""The paths of the wires; each wire is imported when one of its paths is asked for first."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from django.conf import settings
from django.urls import include, path

from mochi_project.http.lazy_urls import LazyUrls, Patterns

from .shapes import OLLAMA_NAMES


def _agui() -> Patterns:
    from .agui.routes import api

    return api.urls[0]


def _vercel() -> Patterns:
    from .vercel.routes import api

    return api.urls[0]


def _models() -> Patterns:
    from .models import api

    return api.urls[0]


def _openai() -> Patterns:
    from .openai.routes import api

    return api.urls[0]


def _anthropic() -> Patterns:
    from .anthropic.routes import api

    return api.urls[0]


def _responses() -> Patterns:
    from .responses.routes import api

    return api.urls[0]


def _conversations() -> Patterns:
    from .responses.conversations import api

    return api.urls[0]


def _ollama() -> Patterns:
    from .ollama.routes import api

    return api.urls[0]


_OLLAMA = LazyUrls(_ollama, "ollama", *OLLAMA_NAMES)

urlpatterns = [
    path("api/v1/", include([LazyUrls(_agui, "agui", "agui"), LazyUrls(_vercel, "vercel", "ui")])),
    path(
        "v1/",
        include(
            [
                LazyUrls(_models, "models", "models"),
                LazyUrls(_openai, "openai", "chat", "completions", "embeddings"),
                LazyUrls(_anthropic, "anthropic", "messages"),
                LazyUrls(_responses, "responses", "responses"),
                LazyUrls(_conversations, "conversations", "conversations"),
            ]
        ),
    ),
    path("ollama/api/", include([_OLLAMA])),
    *([path("api/", include([_OLLAMA]))] if settings.MOCHI.ollama_at_root else ()),
]
