"""The wiring: Django settings and the runtime at the bottom, URLs and ASGI at the top."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

APPS = ("chat", "sessions_app", "tools_app", "agents_app", "prompts_app")
"""The packages of the Django apps, beside this one."""


def import_apps(home: Path) -> None:
    """Import the packages of the apps from this folder, whatever else has their names.

    The working directory is often the first folder of ``sys.path``, and ``chat`` is a common name.

    Raises:
        ImportError: the program has imported another module of that name before.
    """
    before = list(sys.path)
    sys.path.insert(0, str(home))
    try:
        found = {name: import_module(name) for name in APPS}
    finally:
        sys.path[:] = before
    for name, module in found.items():
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
