"""The commands, reached as ``mochi-server NAME`` where there is no ``manage.py``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mochi_project import APPS, use_own_settings

CLOSED_PIPE = 141
"""Exit code that shells give to a command whose pipe was closed."""


def operator_commands() -> list[str]:
    """Return the names of our commands, and Django's ``check``; imports no Django."""
    home = Path(__file__).parents[2]
    names = {
        path.stem
        for package in ("mochi_project", *APPS)
        for path in (home / package / "management" / "commands").glob("*.py")
    }
    return sorted(names - {"__init__", "runserver"} | {"check"})


def operator_parsers(program: str) -> dict[str, argparse.ArgumentParser]:
    _set_up()
    from django.core.management import get_commands, load_command_class  # noqa: PLC0415

    apps = get_commands()
    return {
        name: load_command_class(apps[name], name).create_parser(program, name)
        for name in operator_commands()
    }


def run_operator_command(program: str, arguments: Sequence[str]) -> None:
    """Run a command with the settings of the environment, and exit with its code if it fails."""
    _set_up()
    from django.core.management import get_commands, load_command_class  # noqa: PLC0415

    name = arguments[0]
    try:
        load_command_class(get_commands()[name], name).run_from_argv([program, *arguments])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, such as ``head``; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)


def _set_up() -> None:
    """Prepare Django; what that imports is never searched for garbage.

    As ``django.setup``, but for the prefix of addresses: that imports what answers requests, forms
    and models.
    """
    gc.disable()
    try:
        use_own_settings()
        from django.apps import apps  # noqa: PLC0415 - not to list the names
        from django.conf import settings  # noqa: PLC0415

        if settings.LOGGING_CONFIG:  # of settings that are not our own
            from django.utils.log import configure_logging  # noqa: PLC0415

            configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
        apps.populate(settings.INSTALLED_APPS)
        gc.freeze()
    finally:
        gc.enable()
