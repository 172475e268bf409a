"""Providers of packages: what loading them would do to the server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mochi_server.backends import package_problems
from mochi_server.plugins import load_problem

WAITS_FOR = """
import time
from pathlib import Path
Path({0!r}).touch()
while not Path({1!r}).exists():
    time.sleep(0.01)
"""
ENDS = "loading it ends the process, with exit code {}"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('loaded')", None),
        ("raise RuntimeError('nothing works here')", None),
        ("raise SystemExit(3)", None),
        ("import os\nos._exit(0)", ENDS.format(0)),
        ("import os\nos.abort()", ENDS.format(-6)),
        ("raise KeyboardInterrupt", ENDS.format(-2)),
        ("class Provider:\n    def __init__(self, alias): raise OSError(alias)", None),
        ("import os\nclass Provider:\n    def __init__(self, alias): os._exit(4)", ENDS.format(4)),
        ("import os\ndef Provider(alias): os._exit(4)", None),  # no class: it is not called
    ],
)
def test_code_that_would_end_the_server_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str | None
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mochi_tried.py").write_text(code)
    assert load_problem("tried", "mochi_tried.Provider") == problem
    assert "mochi_tried" not in sys.modules


@pytest.mark.parametrize(
    "code",
    [
        "threading.Event().wait()",
        "class Provider:\n    def __init__(self, alias): threading.Event().wait()",
    ],
)
def test_code_that_hangs_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mochi_tried.py").write_text(f"import threading\n{code}")
    problem = "loading it has not ended after 0.5 seconds"
    assert load_problem("tried", "mochi_tried.Provider", seconds=0.5) == problem


def test_packages_are_tried_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, other in (("mochi_one", "mochi_two"), ("mochi_two", "mochi_one")):
        (tmp_path / f"{name}.py").write_text(
            WAITS_FOR.format(str(tmp_path / name), str(tmp_path / other))
        )
    backends = {
        name: {"BACKEND": f"{name}.Provider", "PACKAGE": name}
        for name in ("mochi_one", "mochi_two")
    }
    assert package_problems(backends) == {"mochi_one": None, "mochi_two": None}
