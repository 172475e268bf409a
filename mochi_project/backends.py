"""What is replaceable, in Django's shape: an alias, a dotted path and its options.

``MOCHI_PROVIDERS`` and ``MOCHI_SESSION_STORAGES`` are read here::

    MOCHI_SESSION_STORAGES = {
        "default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}},
    }

One instance is built for each alias and process. (``BaseConnectionHandler`` would build one for
each asyncio task.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mochi_server.config import MochiServerSettings
from mochi_server.providers.base import Provider
from mochi_server.sessions.storage.base import SessionStorage

T = TypeVar("T")
Backends = dict[str, dict[str, Any]]


class InvalidBackend(ImproperlyConfigured):
    """An alias names something that cannot be built."""


class BackendHandler(Mapping[str, T], Generic[T]):
    """The instances behind the aliases of one setting, each built when it is asked for."""

    setting: ClassVar[str]
    base: ClassVar[type[Any]]
    required: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, backends: Backends | None = None) -> None:
        self.backends: Backends = getattr(settings, self.setting) if backends is None else backends
        self._built: dict[str, T] = {}

    def __getitem__(self, alias: str) -> T:
        if alias not in self._built:
            if alias not in self.backends:
                raise KeyError(alias)
            options = self.backends[alias].get("OPTIONS", {})
            self._built[alias] = self.build(self.class_of(alias), alias, options)
        return self._built[alias]

    def __iter__(self) -> Iterator[str]:
        return iter(self.backends)

    def __len__(self) -> int:
        return len(self.backends)

    def class_of(self, alias: str) -> type[T]:
        """The class that the alias names.

        Raises:
            InvalidBackend: it cannot be imported, or is not of the right kind.
        """
        path = self.backends[alias].get("BACKEND", "")
        try:
            found = import_string(path)
        except ImportError as error:
            raise InvalidBackend(f"{self.setting}[{alias!r}]: {error}") from error
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise InvalidBackend(f"{self.setting}[{alias!r}]: {path} is not a {self.base.__name__}")
        return found

    def build(self, cls: type[T], alias: str, options: Mapping[str, Any]) -> T:
        """An instance."""
        raise NotImplementedError


class ProviderHandler(BackendHandler[Provider]):
    """``MOCHI_PROVIDERS``: built as ``Backend(alias, **OPTIONS)``."""

    setting = "MOCHI_PROVIDERS"
    base = Provider

    def build(self, cls: type[Provider], alias: str, options: Mapping[str, Any]) -> Provider:
        """A provider that knows its alias."""
        return cls(alias, **options)


class StorageHandler(BackendHandler[SessionStorage]):
    """``MOCHI_SESSION_STORAGES``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_SESSION_STORAGES"
    base = SessionStorage
    required = frozenset({"default", "agent_chats"})

    def build(
        self,
        cls: type[SessionStorage],
        alias: str,  # noqa: ARG002 - part of the seam
        options: Mapping[str, Any],
    ) -> SessionStorage:
        """A storage."""
        return cls(**options)


HANDLERS: tuple[type[BackendHandler[Any]], ...] = (ProviderHandler, StorageHandler)


def default_providers(mochi: MochiServerSettings) -> Backends:
    """``MOCHI_PROVIDERS`` for these settings."""
    return {
        "ollama": {
            "BACKEND": "mochi_server.providers.ollama.OllamaProvider",
            "OPTIONS": {
                "host": mochi.ollama_host,
                "connect_timeout": mochi.ollama_connect_timeout_seconds,
                "first_byte_timeout": mochi.ollama_first_byte_timeout_seconds,
                "idle_timeout": mochi.ollama_idle_timeout_seconds,
                "keep_alive": mochi.ollama_keep_alive,
            },
        },
        "local": {
            "BACKEND": "mochi_server.providers.local.LocalProvider",
            "OPTIONS": {
                "models_path": mochi.models_path,
                "idle_seconds": mochi.local_idle_seconds,
                "threads": mochi.local_threads,
            },
        },
    }


def default_storages(mochi: MochiServerSettings) -> Backends:
    """``MOCHI_SESSION_STORAGES`` for these settings."""
    if mochi.session_storage == "memory":
        memory = "mochi_server.sessions.storage.memory.MemoryStorage"
        return {"default": {"BACKEND": memory}, "agent_chats": {"BACKEND": memory}}
    files = "mochi_server.sessions.storage.json_files.JSONFileStorage"
    return {
        "default": {"BACKEND": files, "OPTIONS": {"folder": mochi.sessions_path}},
        "agent_chats": {"BACKEND": files, "OPTIONS": {"folder": mochi.agent_chats_path}},
    }
