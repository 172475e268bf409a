"""What processes that serve the same data tell each other with: a cache and a channel layer.

Which ones follows from the settings; nobody has to choose (docs/how-to/several-workers.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings as django_settings

from mochi_server.config import MochiServerSettings, server_processes
from mochi_server.processes import redis_package_problem, sessions_problem

Table = dict[str, dict[str, Any]]

OF_ONE_PROCESS = {
    "mochi_server.sessions.storage.memory.MemoryStorage",
    "mochi_server.chat.approvals.LocalApprovals",
    "channels.layers.InMemoryChannelLayer",
    "django.core.cache.backends.locmem.LocMemCache",
    "chat.cache.MemoryCache",
    "django.core.cache.backends.dummy.DummyCache",
}
"""Backends that show one process nothing of another."""

MOST_ENTRIES = 100_000
"""Entries of the cache in memory; Django's own 300 would push out open questions."""

MOST_SIGNALS = 10_000

CONNECT_SECONDS = 2
"""Longest wait for a connection to Redis."""

ANSWER_SECONDS = 5
"""Longest wait for an answer of Redis."""


def caches_of(settings: MochiServerSettings) -> Table:
    """``CACHES``."""
    if settings.redis_url is not None:
        options = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
        redis = "django.core.cache.backends.redis.RedisCache"
        return {"default": {"BACKEND": redis, "LOCATION": settings.redis_url, "OPTIONS": options}}
    if settings.session_storage == "memory":
        memory = "chat.cache.MemoryCache"
        options = {"MAX_ENTRIES": MOST_ENTRIES}
        return {"default": {"BACKEND": memory, "LOCATION": "mochi", "OPTIONS": options}}
    folder = settings.state_path / "cache"
    return {"default": {"BACKEND": "chat.cache.FolderCache", "LOCATION": folder}}


def channel_layers_of(settings: MochiServerSettings) -> Table:
    """``CHANNEL_LAYERS``."""
    if settings.redis_url is not None:
        # An answer is not waited for: channels_redis listens for minutes without any.
        host = {
            "address": settings.redis_url,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": None,
        }
        redis = "channels_redis.pubsub.RedisPubSubChannelLayer"
        return {"default": {"BACKEND": redis, "CONFIG": {"hosts": [host], "prefix": "mochi"}}}
    if settings.session_storage == "memory":
        memory = "channels.layers.InMemoryChannelLayer"
        return {"default": {"BACKEND": memory, "CONFIG": {"capacity": MOST_SIGNALS}}}
    folder = settings.state_path / "channels"
    return {"default": {"BACKEND": "chat.layers.FolderChannelLayer", "CONFIG": {"folder": folder}}}


def approvals_of(settings: MochiServerSettings) -> Table:
    """``MOCHI_APPROVALS``."""
    timeout = settings.tool_confirmation_timeout_seconds
    return {
        "default": {
            "BACKEND": "chat.approvals.ChannelLayerApprovals",
            "OPTIONS": {"timeout": timeout},
        }
    }


def shared_problems() -> list[str]:
    """Why the processes of this server could not work together; empty when they can."""
    mochi: MochiServerSettings = django_settings.MOCHI
    processes = server_processes(mochi)
    found = [sessions_problem(mochi, processes), redis_package_problem(mochi)]
    if processes > 1 and found[0] is None:
        found += [
            f"{where} is {path}, which is for one process, and {processes} serve."
            for where, path in _backends()
            if path in OF_ONE_PROCESS
        ]
    return [problem for problem in found if problem is not None]


def _backends() -> list[tuple[str, str]]:
    """What processes share, and the dotted path of its backend."""
    broker = django_settings.MOCHI_APPROVALS.get("default", {})
    options: Mapping[str, Any] = broker.get("OPTIONS", {})
    places = [
        ("MOCHI_SESSION_STORAGES", "default"),
        ("MOCHI_SESSION_STORAGES", "agent_chats"),
        ("MOCHI_APPROVALS", "default"),
    ]
    if broker.get("BACKEND") == "chat.approvals.ChannelLayerApprovals":
        places.append(("CHANNEL_LAYERS", options.get("layer", "default")))
        places.append(("CACHES", options.get("cache", "default")))
    return [
        (f"{setting}[{alias!r}]", getattr(django_settings, setting).get(alias, {}).get("BACKEND"))
        for setting, alias in places
    ]
