from __future__ import annotations

import pytest

from mochi_server.workspace.globs import matches


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("main.py", "*.py", True),
        ("src/deep/main.py", "*.py", True),
        ("src/main.py", "src/*.py", True),
        ("src/deep/main.py", "src/*.py", False),
        ("src/main.py", "./src/*.py", True),
        ("src/main.py", "src/**/*.py", True),
        ("src/a/b/main.py", "src/**/*.py", True),
        ("other/src/main.py", "src/**/*.py", False),
        ("other/src/main.py", "**/src/*.py", True),
        ("src/a/b", "src/**", True),
        ("src", "src/**", True),
        ("lib/a", "src/**", False),
        ("a/b", "a/?", True),
        ("Main.py", "main.py", False),
        ("a/x/b/y/c", "**/x/**/y/*", True),
        ("a1", "a[0-9]", True),
    ],
)
def test_a_path_matches_a_glob(path, pattern, expected):
    assert matches(path, pattern) is expected


@pytest.mark.timeout(60)
def test_no_pattern_takes_long():
    assert not matches("a" * 255, "*a" * 100 + "b")
    assert not matches("/".join("a" * 500), "**/a/" * 200 + "b")
