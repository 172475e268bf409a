"""What can be replaced, in Django's shape, and what processes share.

A backend has an alias, a dotted path and options; ``MOCHI_PROVIDERS``,
``MOCHI_SESSION_STORAGES`` and ``MOCHI_APPROVALS`` are read here::

    MOCHI_SESSION_STORAGES = {
        "default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}},
    }

One instance is built for each alias and process. (``BaseConnectionHandler`` would build one for
each asyncio task.) Which cache and which channel layer the processes of a server have follows from
the settings (docs/how-to/several-workers.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from mochi_server.backends import (
    Backends,
    NotABackend,
    build_backend,
    build_provider,
    import_class,
)
from mochi_server.chat.confirmations import ConfirmationBroker
from mochi_server.config import MochiServerSettings, server_processes
from mochi_server.providers.base import Provider
from mochi_server.server.startup import redis_package_problem, sessions_problem
from mochi_server.sessions.storage.base import SessionStorage

T = TypeVar("T")


class InvalidBackend(ImproperlyConfigured):
    """The backend of an alias cannot be built."""


class BackendHandler(Mapping[str, T], Generic[T]):
    """The instances of the aliases of one setting, each built at its first use."""

    setting: ClassVar[str]
    base: ClassVar[type[Any]]
    required: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, backends: Backends | None = None) -> None:
        self.backends: Backends = (
            getattr(django_settings, self.setting) if backends is None else backends
        )
        self._built: dict[str, T] = {}

    def __getitem__(self, alias: str) -> T:
        if alias not in self._built:
            if alias not in self.backends:
                raise KeyError(alias)
            with self._named(alias):
                self._built[alias] = self.build(alias)
        return self._built[alias]

    def __iter__(self) -> Iterator[str]:
        return iter(self.backends)

    def __len__(self) -> int:
        return len(self.backends)

    def check(self, alias: str) -> None:
        """Check that the alias names a class of the right kind.

        Raises:
            InvalidBackend: It does not.
        """
        with self._named(alias):
            import_class(self.backends[alias], self.base)

    @contextmanager
    def _named(self, alias: str) -> Iterator[None]:
        try:
            yield
        except NotABackend as error:
            raise InvalidBackend(f"{self.setting}[{alias!r}]: {error}") from error

    def build(self, alias: str) -> T:
        backend: T = build_backend(self.backends[alias], self.base)
        return backend


class ProviderHandler(BackendHandler[Provider]):
    """``MOCHI_PROVIDERS``: built as ``Backend(alias, **OPTIONS)``."""

    setting = "MOCHI_PROVIDERS"
    base = Provider

    def build(self, alias: str) -> Provider:
        return build_provider(alias, self.backends[alias])


class StorageHandler(BackendHandler[SessionStorage]):
    """``MOCHI_SESSION_STORAGES``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_SESSION_STORAGES"
    base = SessionStorage
    required = frozenset({"default", "agent_chats"})


class ConfirmationsHandler(BackendHandler[ConfirmationBroker]):
    """``MOCHI_APPROVALS``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_APPROVALS"
    base = ConfirmationBroker
    required = frozenset({"default"})


HANDLERS: tuple[type[BackendHandler[Any]], ...] = (
    ProviderHandler,
    StorageHandler,
    ConfirmationsHandler,
)


Table = dict[str, dict[str, Any]]

THROUGH_CHANNELS = {
    "chat.confirmations.channel_layer.ChannelLayerConfirmations",
    "chat.approvals.ChannelLayerApprovals",  # its former name
}
"""Brokers of confirmations that need a cache and a channel layer."""

OF_ONE_PROCESS = {
    "mochi_server.sessions.storage.memory.MemoryStorage",
    "mochi_server.chat.confirmations.LocalConfirmations",
    "mochi_server.chat.approvals.LocalApprovals",  # its former name
    "channels.layers.InMemoryChannelLayer",
    "django.core.cache.backends.locmem.LocMemCache",
    "chat.confirmations.cache.MemoryCache",
    "django.core.cache.backends.dummy.DummyCache",
}
"""Backends that keep what one process has from the others."""

MOST_ENTRIES = 100_000
"""Entries of the cache in memory; Django's own 300 would push out confirmations."""

MOST_SIGNALS = 10_000

CONNECT_SECONDS = 2
"""Longest wait for a connection to Redis."""

ANSWER_SECONDS = 5
"""Longest wait for an answer of Redis."""


def caches_of(settings: MochiServerSettings) -> Table:
    """Return ``CACHES``."""
    if settings.redis_url is not None:
        options = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
        redis = "django.core.cache.backends.redis.RedisCache"
        return {"default": {"BACKEND": redis, "LOCATION": settings.redis_url, "OPTIONS": options}}
    if settings.session_storage == "memory":
        memory = "chat.confirmations.cache.MemoryCache"
        options = {"MAX_ENTRIES": MOST_ENTRIES}
        return {"default": {"BACKEND": memory, "LOCATION": "mochi", "OPTIONS": options}}
    folder = settings.state_path / "cache"
    return {"default": {"BACKEND": "chat.confirmations.cache.FolderCache", "LOCATION": folder}}


def channel_layers_of(settings: MochiServerSettings) -> Table:
    """Return ``CHANNEL_LAYERS``."""
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
    return {
        "default": {
            "BACKEND": "chat.confirmations.folder_layer.FolderChannelLayer",
            "CONFIG": {"folder": folder},
        }
    }


def approvals_of(settings: MochiServerSettings) -> Table:
    """Return ``MOCHI_APPROVALS``."""
    timeout = settings.tool_confirmation_timeout_seconds
    return {
        "default": {
            "BACKEND": "chat.confirmations.channel_layer.ChannelLayerConfirmations",
            "OPTIONS": {"timeout": timeout},
        }
    }


def shared_problems() -> list[str]:
    """Return why the processes of this server could not work together; empty if they can."""
    mochi: MochiServerSettings = django_settings.MOCHI
    processes = server_processes(mochi)
    problems = [sessions_problem(mochi, processes), redis_package_problem(mochi)]
    if processes > 1 and problems[0] is None:
        problems += [
            f"{where} is {path}, which is for one process, and {processes} serve."
            for where, path in _backends()
            if path in OF_ONE_PROCESS
        ]
    return [problem for problem in problems if problem is not None]


def _backends() -> list[tuple[str, str]]:
    broker = django_settings.MOCHI_APPROVALS.get("default", {})
    options: Mapping[str, Any] = broker.get("OPTIONS", {})
    places = [
        ("MOCHI_SESSION_STORAGES", "default"),
        ("MOCHI_SESSION_STORAGES", "agent_chats"),
        ("MOCHI_APPROVALS", "default"),
    ]
    if broker.get("BACKEND") in THROUGH_CHANNELS:
        places.append(("CHANNEL_LAYERS", options.get("layer", "default")))
        places.append(("CACHES", options.get("cache", "default")))
    return [
        (f"{setting}[{alias!r}]", getattr(django_settings, setting).get(alias, {}).get("BACKEND"))
        for setting, alias in places
    ]
