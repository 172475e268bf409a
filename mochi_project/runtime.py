"""The one :class:`mochi_server.runtime.Runtime` of this process, with the backends of the settings.

``MOCHI_PROVIDERS``, ``MOCHI_SESSION_STORAGES`` and ``MOCHI_CONFIRMATIONS`` name backends as
``CACHES`` does, by alias::

    MOCHI_SESSION_STORAGES = {
        "default": {"BACKEND": "package.module.Storage", "OPTIONS": {"folder": "/data"}},
    }

One instance is built for each alias and process. (``BaseConnectionHandler`` would build one for
each asyncio task.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from mochi_server.backends import (
    Backends,
    NotABackend,
    build_backend,
    build_provider,
    import_class,
    package_problems,
)
from mochi_server.chat.confirmations import ConfirmationStore
from mochi_server.config import MochiServerSettings, server_processes
from mochi_server.core.ids import start_ids
from mochi_server.providers.base import Provider
from mochi_server.runtime import Runtime
from mochi_server.server.startup import (
    database_package_problem,
    metrics_folder_problem,
    metrics_package_problem,
    redis_package_problem,
    sessions_problem,
)
from mochi_server.sessions.storage.base import SessionStorage

from .signals import signals_of_settings
from .storages import state_of

T = TypeVar("T")


class InvalidBackend(ImproperlyConfigured):
    """The backend of an alias cannot be built."""


class BackendHandler(Mapping[str, T], Generic[T]):
    """The instances of the aliases of one setting, each built at its first use."""

    setting: ClassVar[str]
    base: ClassVar[type[Any]]
    required: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, backends: Backends | None = None) -> None:
        self.backends: Backends = getattr(settings, self.setting) if backends is None else backends
        self._built: dict[str, T] = {}

    def __getitem__(self, alias: str) -> T:
        if alias not in self._built:
            with self._named(alias):
                self._built[alias] = self.build(alias)
        return self._built[alias]

    def __iter__(self) -> Iterator[str]:
        return iter(self.backends)

    def __len__(self) -> int:
        return len(self.backends)

    def check(self, alias: str) -> None:
        """Raise :class:`InvalidBackend` unless the alias names a class of the right kind."""
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

    def check(self, alias: str) -> None:
        """Check the alias, unless a package brings it, without which the server goes on."""
        if "PACKAGE" not in self.backends[alias]:
            super().check(alias)

    def build(self, alias: str) -> Provider:
        return build_provider(alias, self.backends[alias], self._problems.get(alias))

    @cached_property
    def _problems(self) -> dict[str, str | None]:
        return package_problems(self.backends)


class StorageHandler(BackendHandler[SessionStorage]):
    """``MOCHI_SESSION_STORAGES``: built as ``Backend(**OPTIONS)``."""

    setting = "MOCHI_SESSION_STORAGES"
    base = SessionStorage
    required = frozenset({"default", "agent_chats"})


class ConfirmationsHandler(BackendHandler[ConfirmationStore]):
    """``MOCHI_CONFIRMATIONS``: ``default`` is built as ``Backend(**OPTIONS)``, where it is set."""

    setting = "MOCHI_CONFIRMATIONS"
    base = ConfirmationStore


HANDLERS: tuple[type[BackendHandler[Any]], ...] = (
    ProviderHandler,
    StorageHandler,
    ConfirmationsHandler,
)

OF_ONE_PROCESS = {
    "mochi_server.sessions.storage.memory.MemoryStorage",
    "mochi_server.chat.confirmations.state.StateConfirmationStore",  # without a state
}
"""Backends that keep what one process has from the others."""


def shared_problems() -> list[str]:
    """Return why the processes of this server could not work together; empty if they can."""
    mochi: MochiServerSettings = settings.MOCHI
    processes = server_processes(mochi)
    problems = [
        sessions_problem(mochi, processes),
        redis_package_problem(mochi),
        database_package_problem(mochi),
        metrics_package_problem(mochi),
        metrics_folder_problem(mochi, processes),
    ]
    if processes > 1 and problems[0] is None:
        problems += [
            f"{where} is {path}, which is for one process, and {processes} serve."
            for where, path in _shared_backends()
            if path in OF_ONE_PROCESS
        ]
    return [problem for problem in problems if problem is not None]


def _shared_backends() -> Iterator[tuple[str, str | None]]:
    """Yield where each backend is set that processes share, and its dotted path."""
    aliases = [
        ("MOCHI_SESSION_STORAGES", "default"),
        ("MOCHI_SESSION_STORAGES", "agent_chats"),
        ("MOCHI_CONFIRMATIONS", "default"),
    ]
    for setting, alias in aliases:
        backend = getattr(settings, setting).get(alias, {})
        yield f"{setting}[{alias!r}]", backend.get("BACKEND")


_runtime: Runtime | None = None


def get_runtime() -> Runtime:
    """Return the runtime, built from the settings at first use; who serves starts and closes it."""
    global _runtime  # noqa: PLW0603 - one per process
    if _runtime is None:
        start_ids(repeatable=settings.MOCHI.environment == "test")
        _runtime = Runtime(
            settings.MOCHI,
            providers=ProviderHandler(),
            storages=StorageHandler(),
            state=state_of(settings.MOCHI),
            signals=signals_of_settings(),
            confirmations=ConfirmationsHandler().get("default"),
        )
    return _runtime


def forget_runtime() -> None:
    """Build a new runtime at the next use; the caller has closed the old one."""
    global _runtime  # noqa: PLW0603 - one per process
    _runtime = None
