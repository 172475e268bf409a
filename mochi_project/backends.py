"""What is replaceable, in Django's shape: an alias, a dotted path and its options.

``MOCHI_PROVIDERS``, ``MOCHI_SESSION_STORAGES`` and ``MOCHI_APPROVALS`` are read here::

    MOCHI_SESSION_STORAGES = {
        "default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}},
    }

One instance is built for each alias and process. (``BaseConnectionHandler`` would build one for
each asyncio task.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from mochi_server.backends import (
    Backends,
    NotABackend,
    build_provider,
    build_storage,
    import_class,
)
from mochi_server.chat.approvals import ApprovalBroker
from mochi_server.providers.base import Provider
from mochi_server.sessions.storage.base import SessionStorage

T = TypeVar("T")


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
            with self._named(alias):
                self._built[alias] = self.build(alias)
        return self._built[alias]

    def __iter__(self) -> Iterator[str]:
        return iter(self.backends)

    def __len__(self) -> int:
        return len(self.backends)

    def check(self, alias: str) -> None:
        """Be sure that the alias names a class of the right kind.

        Raises:
            InvalidBackend: it does not.
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
        """An instance."""
        raise NotImplementedError


class ProviderHandler(BackendHandler[Provider]):
    """``MOCHI_PROVIDERS``: built as ``Backend(alias, **OPTIONS)``."""

    setting = "MOCHI_PROVIDERS"
    base = Provider

    def build(self, alias: str) -> Provider:
        """A provider that knows its alias."""
        return build_provider(alias, self.backends[alias])


class StorageHandler(BackendHandler[SessionStorage]):
    """``MOCHI_SESSION_STORAGES``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_SESSION_STORAGES"
    base = SessionStorage
    required = frozenset({"default", "agent_chats"})

    def build(self, alias: str) -> SessionStorage:
        """A storage."""
        return build_storage(self.backends[alias])


class ApprovalsHandler(BackendHandler[ApprovalBroker]):
    """``MOCHI_APPROVALS``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_APPROVALS"
    base = ApprovalBroker
    required = frozenset({"default"})

    def build(self, alias: str) -> ApprovalBroker:
        """A broker."""
        backend = self.backends[alias]
        found: ApprovalBroker = import_class(backend, ApprovalBroker)(**backend.get("OPTIONS", {}))
        return found


HANDLERS: tuple[type[BackendHandler[Any]], ...] = (
    ProviderHandler,
    StorageHandler,
    ApprovalsHandler,
)
