"""The page on conformance names every section of the specification and tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import REFERENCE, ROOT, codes, headings, rows, section

PAGE = REFERENCE / "conformance.md"
DOCUMENTS = headings(PAGE, 2)

TOP_LEVEL = {
    "The server": [*map(str, range(1, 21)), "A", "B"],
    "The plan": [*map(str, range(11))],
    "Dual-mode chat": ["1", "2"],
    "The MCP agent platform": [*map(str, range(1, 9))],
    "Server test mode": [*map(str, range(1, 10))],
}


def sections(document: str) -> list[list[str]]:
    """Number, title, state, tests and remark of every section of a document."""
    return list(rows(section(PAGE, f"## {document}")))


def place(number: str) -> tuple[int, list[int], str]:
    """Sort numbers as numbers, and the letters of appendices behind them."""
    if number.isalpha():
        return 1, [], number
    return 0, [int(part) for part in number.split(".")], ""


def functions_of(path: str) -> set[str]:
    """The tests that pytest collects from a file."""
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    groups = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    nodes = [*tree.body, *(node for group in groups for node in group.body)]
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_document_is_there_with_its_sections() -> None:
    assert list(TOP_LEVEL) == DOCUMENTS
    for document, numbers in TOP_LEVEL.items():
        assert [row[0] for row in sections(document) if "." not in row[0]] == numbers


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_sections_are_in_order_and_each_is_there_once(document: str) -> None:
    numbers = [row[0] for row in sections(document)]
    assert numbers == sorted(set(numbers), key=place)
    followed = {number.rpartition(".")[0] for number in numbers if "." in number}
    assert followed < set(numbers)
    for parent in followed:  # none is left out
        last = [int(n.rpartition(".")[2]) for n in numbers if n.rpartition(".")[0] == parent]
        assert last == list(range(1, len(last) + 1))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_section_has_its_tests_or_the_reason_why_there_are_none(document: str) -> None:
    for number, title, state, tests, remark in sections(document):
        assert title, number
        assert state in {"yes", "differently", "no", "—"}, number
        assert bool(tests) == (state in {"yes", "differently"}), number
        assert remark or state == "yes", number


def test_every_test_that_is_named_exists() -> None:
    named = {name for document in DOCUMENTS for row in sections(document) for name in codes(row[3])}
    files = {name.partition("::")[0] for name in named}
    assert all(re.fullmatch(r"(\w+/)*test_\w+\.py", path) for path in files)
    known = {f"{path}::{name}" for path in files for name in functions_of(path)}
    assert named - known == set()
