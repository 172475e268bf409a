"""The one door from the library to its Django face."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from .config import MochiServerSettings, export, load_settings

ASGIApplication = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[Mapping[str, Any]]],
        Callable[[Mapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

_given: dict[str, object] | None = None


def create_app(**values: Any) -> ASGIApplication:  # noqa: ANN401 - checked by the settings
    """The ASGI application with these settings, such as ``ollama_host`` and ``data_dir``.

    Every keyword is a field of :class:`MochiServerSettings` and goes before the environment. There
    is one application in a process, as Django has it.

    Raises:
        SettingsError: a value is not allowed.
        TypeError: a keyword is not a setting.
        RuntimeError: there is an application already, with other settings.
    """
    global _given  # noqa: PLW0603 - one application per process is the point
    unknown = sorted(set(values) - set(MochiServerSettings.model_fields))
    if unknown:
        raise TypeError(f"create_app() got unknown settings: {', '.join(unknown)}")
    if _given is not None and _given != values:
        raise RuntimeError("create_app() was called before, with other settings")
    load_settings(**values)
    export(values)

    from mochi_project.asgi import application  # noqa: PLC0415 - imports Django

    _given = dict(values)
    return application
