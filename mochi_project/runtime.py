"""The one :class:`mochi_server.runtime.Runtime` of this process."""

from __future__ import annotations

from django.conf import settings
from django.core.signals import setting_changed

from mochi_server.core.ids import start_ids
from mochi_server.runtime import Runtime

from .backends import ConfirmationsHandler, ProviderHandler, StorageHandler

_SETTINGS = frozenset(
    {
        "MOCHI",
        "MOCHI_PROVIDERS",
        "MOCHI_SESSION_STORAGES",
        "MOCHI_APPROVALS",
        "CACHES",
        "CHANNEL_LAYERS",
    }
)

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
            approvals=ConfirmationsHandler()["default"],
        )
    return _runtime


def forget_runtime() -> None:
    """Build a new runtime at the next use; the caller has closed the old one."""
    global _runtime  # noqa: PLW0603 - one per process
    _runtime = None


def _forget(*, setting: str, **_: object) -> None:
    if setting in _SETTINGS:
        forget_runtime()


setting_changed.connect(_forget)
