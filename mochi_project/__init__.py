"""The Django project: settings and runtime at the bottom, URLs and ASGI at the top."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from mochi_server.config import export_default

APPS = ("chat", "sessions_app", "tools_app", "agents_app", "prompts_app")
"""The packages of the Django apps, beside this one."""


def use_own_settings() -> None:
    """Have Django read :mod:`mochi_project.settings`, unless the environment names others."""
    export_default("DJANGO_SETTINGS_MODULE", "mochi_project.settings")


def import_apps(home: Path) -> None:
    """Import the packages of the apps from this folder, whatever else has their names.

    The working directory is often the first folder of ``sys.path``, and ``chat`` is a common name.

    Raises:
        ImportError: The program has imported another module of that name before.
    """
    before = list(sys.path)
    sys.path.insert(0, str(home))
    try:
        packages = {name: import_module(name) for name in APPS}
    finally:
        sys.path[:] = before
    for name, module in packages.items():
        file = getattr(module, "__file__", None)
        if file is None or Path(file).resolve() != home / name / "__init__.py":
            raise ImportError(
                f"mochi-server has a package {name!r}, but this program has imported another one, "
                f"{file or 'a folder without __init__.py'}, under that name. Rename that one, or "
                "run mochi-server in a process of its own.",
                name=name,
                path=file,
            )


import_apps(Path(__file__).resolve().parent.parent)
