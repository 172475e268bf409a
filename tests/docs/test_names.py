"""Names mean one thing each in the whole product."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.docs.pages import sources

DJANGOS = {"Command"}
"""Names of classes that Django prescribes."""


def test_a_class_name_occurs_once() -> None:
    modules = defaultdict(list)
    for path in sources():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.as_posix())
    twice = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in DJANGOS} == {}
