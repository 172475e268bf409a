"""Providers of packages: what their import would do to the server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mochi_server.plugins import import_problem

ENDS = "its import ends the process, with exit code {}"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('loaded')", None),
        ("raise RuntimeError('nothing works here')", None),
        ("raise SystemExit(3)", None),
        ("import os\nos._exit(0)", ENDS.format(0)),
        ("import os\nos.abort()", ENDS.format(-6)),
        ("raise KeyboardInterrupt", ENDS.format(-2)),
    ],
)
def test_an_import_that_would_end_the_server_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str | None
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mochi_tried.py").write_text(code)
    assert import_problem("mochi_tried") == problem
    assert "mochi_tried" not in sys.modules


def test_an_import_that_hangs_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mochi_tried.py").write_text("import threading\nthreading.Event().wait()")
    problem = "its import has not ended after 0.5 seconds"
    assert import_problem("mochi_tried", seconds=0.5) == problem
