"""The one door from the library to its Django face: no other module of it names the face."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from .backends import build_storages
from .config import MochiServerSettings, export, load_settings

if TYPE_CHECKING:
    from .sessions.storage.base import SessionStorage
    from .state import State

APPLICATION = "mochi_project.asgi:application"
"""The application as ASGI servers name it."""


class ASGIApplication(Protocol):
    """The application that :func:`create_app` returns."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start it, and end it with the block, in a program that mounts it below a path."""


_values_of_application: dict[str, object] | None = None


def create_app(**values: Any) -> ASGIApplication:  # noqa: ANN401 - checked by the settings
    """Return the ASGI application with settings such as ``ollama_host`` and ``data_dir``.

    Every keyword is a field of :class:`mochi_server.MochiServerSettings` and goes before the
    environment. There is one application in a process, as Django has it.

    Raises:
        SettingsError: A value is not allowed.
        TypeError: A keyword is not a setting.
        RuntimeError: There is an application already, with other settings, or this process belongs
            to another Django project.
    """
    global _values_of_application  # noqa: PLW0603 - one application per process is the point
    if _values_of_application is not None and _values_of_application != values:
        raise RuntimeError("create_app() was called before, with other settings")
    load_settings(**values)
    export(values)

    from mochi_project.asgi import application  # noqa: PLC0415 - imports Django

    _values_of_application = dict(values)
    return application


def session_storages(settings: MochiServerSettings) -> dict[str, SessionStorage]:
    """Return the storages of sessions that settings choose, also where they need Django."""
    from mochi_project.storages import storages_of  # noqa: PLC0415 - the face is loaded when used

    return build_storages(storages_of(settings))


def shared_state(settings: MochiServerSettings) -> State | None:
    """Return the state in the PostgreSQL of the settings; None: each machine has its own."""
    from mochi_project.storages import state_of  # noqa: PLC0415 - the face is loaded when used

    return state_of(settings)


def operator_commands() -> list[str]:
    """Return the names of the commands that keep a server in order."""
    from mochi_project import management  # noqa: PLC0415 - the face is loaded when used

    return management.operator_commands()


def operator_parsers(program: str) -> dict[str, argparse.ArgumentParser]:
    from mochi_project import management  # noqa: PLC0415

    return management.operator_parsers(program)


def run_operator_command(program: str, arguments: Sequence[str]) -> None:
    """Run one of these commands, with the settings of the environment.

    Raises:
        SystemExit: The command has failed; with its exit code.
    """
    from mochi_project import management  # noqa: PLC0415

    management.run_operator_command(program, arguments)
