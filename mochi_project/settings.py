"""Django's settings, made from :class:`mochi_server.config.MochiServerSettings`.

No users, and no database unless one is named: nothing here may bring a synchronous middleware,
which would cost a thread for each open stream.
"""

from __future__ import annotations

import secrets
from itertools import chain
from logging.config import dictConfig
from typing import Any

from mochi_server.backends import default_providers
from mochi_server.config import load_settings
from mochi_server.core.logs import logging_config
from mochi_server.server.startup import database_package_problem, redis_package_problem

from .databases import databases
from .http.wires import WIRES
from .signals import channel_layers
from .storages import storages_of

MOCHI = load_settings()

MOCHI_PROVIDERS = default_providers(MOCHI)
MOCHI_SESSION_STORAGES = storages_of(MOCHI)
MOCHI_CONFIRMATIONS: dict[str, Any] = {}

DATABASES: dict[str, Any] = {}
if MOCHI.database_url is not None and database_package_problem(MOCHI) is None:
    DATABASES = databases(MOCHI.database_url)

CHANNEL_LAYERS: dict[str, Any] = {}
if MOCHI.redis_url is not None and redis_package_problem(MOCHI) is None:
    CHANNEL_LAYERS = channel_layers(MOCHI.redis_url)

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

    CORS_ALLOW_HEADERS = [
        *default_headers,
        "x-request-id",
        "x-mochi-session",
        *sorted(chain.from_iterable(wire.headers for wire in WIRES)),
    ]
    INSTALLED_APPS.append("corsheaders")
    MIDDLEWARE.insert(0, "corsheaders.middleware.CorsMiddleware")
CORS_ALLOWED_ORIGINS = MOCHI.cors_origins
CORS_EXPOSE_HEADERS = [
    "Retry-After",
    "X-Request-ID",
    "X-Run-Id",
    "X-Mochi-Session",
    "X-Mochi-Dropped-Messages",
]

ROOT_URLCONF = "mochi_project.urls"
DATA_UPLOAD_MAX_MEMORY_SIZE = MOCHI.max_wire_body_bytes

LOGGING_CONFIG = None  # Django's own handlers, which import templates and views, are not used
dictConfig(logging_config(MOCHI.log_level, MOCHI.log_format))
