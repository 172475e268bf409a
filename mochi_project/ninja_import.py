"""Imports Ninja without what tests of Django need."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from django.core.signals import setting_changed


def import_ninja() -> None:
    """Import Ninja without ``django.test``, which takes 5 MB with unittest, XML and Jinja.

    ``ninja.conf`` imports it for a signal that Django has in ``django.core.signals``. Whoever
    imports it afterwards gets the real one.
    """
    if "ninja" in sys.modules or "django.test" in sys.modules:
        return
    package: Any = ModuleType("django.test")
    package.__path__ = []
    signals: Any = ModuleType("django.test.signals")
    signals.setting_changed = setting_changed
    sys.modules.update({"django.test": package, "django.test.signals": signals})
    try:
        import_module("ninja")
    finally:
        del sys.modules["django.test"], sys.modules["django.test.signals"]
