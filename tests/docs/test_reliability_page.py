"""The tests that docs/explanation/reliability.md names are there."""

from __future__ import annotations

import re

from .pages import ROOT, rows

PAGE = ROOT / "docs" / "explanation" / "reliability.md"


def test_every_fault_has_a_test_that_exists() -> None:
    faults = rows(PAGE.read_text("utf-8"))
    assert faults
    for fault in faults:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", fault[-1])
        assert named, fault[0]
        for path, name in named:
            text = (ROOT / "tests" / path).read_text("utf-8")
            assert not name or f"def {name}(" in text, f"{path} has no {name}"
