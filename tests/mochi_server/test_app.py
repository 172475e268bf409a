"""The library and its Django face know each other through one door."""

from __future__ import annotations

import re

from mochi_project import APPS
from tests.support.server import ROOT

MODULES = "|".join({path.stem for path in (ROOT / "chat").iterdir()} - {"__init__", "__pycache__"})
NAMES = re.compile(
    rf"mochi_project|{'|'.join(APPS[1:])}|(?<![\w.])chat[./]({MODULES})\b|manage\.py"
)


def test_no_module_of_the_library_but_the_door_names_the_face() -> None:
    door = ROOT / "mochi_server" / "app.py"
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "mochi_server").rglob("*.py")
        if path != door and NAMES.search(path.read_text("utf-8"))
    }
    assert naming == set()
    assert NAMES.search(door.read_text("utf-8"))
