"""Django's settings, made from :class:`mochi_server.config.MochiServerSettings`.

No database, no sessions, no users: nothing here may bring a synchronous middleware, which would
cost a thread for each open stream.
"""

from __future__ import annotations

import secrets

from mochi_server.backends import Backends, default_providers, default_storages
from mochi_server.config import MochiServerSettings, load_settings
from mochi_server.core.logs import logging_config


def caches_of(mochi: MochiServerSettings) -> Backends:
    """Return ``CACHES``, which the processes of a server share (docs/how-to/several-workers.md)."""
    if mochi.redis_url is not None:
        redis = "django.core.cache.backends.redis.RedisCache"
        options = {"socket_connect_timeout": 2, "socket_timeout": 5}
        return {"default": {"BACKEND": redis, "LOCATION": mochi.redis_url, "OPTIONS": options}}
    if mochi.session_storage == "memory":
        memory = "chat.confirmations.cache.MemoryCache"
        options = {"MAX_ENTRIES": 100_000}  # Django's own 300 would push out confirmations
        return {"default": {"BACKEND": memory, "LOCATION": "mochi", "OPTIONS": options}}
    folder = mochi.state_path / "cache"
    return {"default": {"BACKEND": "chat.confirmations.cache.FolderCache", "LOCATION": folder}}


def channel_layers_of(mochi: MochiServerSettings) -> Backends:
    """Return ``CHANNEL_LAYERS``, by which the processes of a server signal each other."""
    config: dict[str, object]
    if mochi.redis_url is not None:
        backend = "channels_redis.pubsub.RedisPubSubChannelLayer"
        # An answer is not waited for: channels_redis listens for minutes without any.
        timeouts = {"socket_connect_timeout": 2, "socket_timeout": None}
        config = {"hosts": [{"address": mochi.redis_url, **timeouts}], "prefix": "mochi"}
    elif mochi.session_storage == "memory":
        backend = "channels.layers.InMemoryChannelLayer"
        config = {"capacity": 10_000}
    else:
        backend = "chat.confirmations.folder_layer.FolderChannelLayer"
        config = {"folder": mochi.state_path / "channels"}
    return {"default": {"BACKEND": backend, "CONFIG": config}}


def approvals_of(mochi: MochiServerSettings) -> Backends:
    broker = "chat.confirmations.channel_layer.ChannelLayerConfirmations"
    options = {"timeout": mochi.tool_confirmation_timeout_seconds}
    return {"default": {"BACKEND": broker, "OPTIONS": options}}


MOCHI = load_settings()

MOCHI_PROVIDERS = default_providers(MOCHI)
MOCHI_SESSION_STORAGES = default_storages(MOCHI)
MOCHI_APPROVALS = approvals_of(MOCHI)

CACHES = caches_of(MOCHI)
CHANNEL_LAYERS = channel_layers_of(MOCHI)

SECRET_KEY = secrets.token_urlsafe(50)  # Django wants one; nothing here is signed.
ALLOWED_HOSTS = ["*"]  # mochi_project.http.gate checks the Host before Django sees a request.
TIME_ZONE = None  # with a name Django sets TZ for this process and all that it starts
USE_I18N = False

INSTALLED_APPS = [
    "mochi_project",
    "chat",
    "sessions_app",
    "tools_app",
    "agents_app",
    "prompts_app",
]
MIDDLEWARE = ["mochi_project.http.handler.plain_http"]
if MOCHI.cors_origins:
    from corsheaders.defaults import default_headers

    CORS_ALLOW_HEADERS = [*default_headers, "x-request-id"]
    INSTALLED_APPS.append("corsheaders")
    MIDDLEWARE.insert(0, "corsheaders.middleware.CorsMiddleware")
CORS_ALLOWED_ORIGINS = MOCHI.cors_origins
CORS_EXPOSE_HEADERS = ["Retry-After", "X-Request-ID"]

ROOT_URLCONF = "mochi_project.urls"
DATA_UPLOAD_MAX_MEMORY_SIZE = MOCHI.max_body_bytes

LOGGING = logging_config(MOCHI.log_level)
