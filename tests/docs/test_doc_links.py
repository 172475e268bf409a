"""What pages link to, cite and name is there: pages, headings, files, layers, tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import (
    PAGES,
    REFERENCE,
    ROOT,
    anchors,
    blocks,
    codes,
    headings,
    links,
    rows,
    section,
    sources,
)

ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
NOT_OURS = {"data", "build", "dist", "__pycache__", "node_modules"}
GIT_FILE = ".git"
"""What git has in a linked work tree where the folder of a repository would be."""
TEXT = {".py", ".md", ".toml", ".txt", ".in", ".cfg", ".sh", ".yml", ".yaml", ""}
ELSEWHERE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/w" + r"ork\b",
            r"\bsh" + r"ared/(?:spec|design|data|hooks)\b",
            r"\bS[0-4] " + "§",
            r"\bS[0-4]-[a-z]+-",
            r"(?<![\w-])deci" + r"sions\.md",
            r"\bissue " + r"\d+\b",
        ]
    )
)
"""Places and papers that somebody with the repository alone does not have."""


def is_external(target: str) -> bool:
    return "://" in target or target.startswith("mailto:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in links(page):
        if is_external(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_docs_is_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    seen: set[Path] = set()
    todo = [docs / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        inner = [link.partition("#")[0] for link in links(page) if not is_external(link)]
        todo += [(page.parent / path).resolve() for path in inner if path]
    assert {page for page in PAGES if docs in page.parents} - seen == set()


def test_every_page_that_the_code_cites_exists() -> None:
    cited = {
        (path, match)
        for path, text in sources().items()
        for match in re.findall(r"\bdocs/(?:\w[\w-]*/)*[\w-]+\.md\b", text)
        if not match.startswith("docs/agents/")  # of the user's data folder
    }
    assert sorted(pair for pair in cited if not (ROOT / pair[1]).is_file()) == []


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name == ".ci" or not (path.name.startswith(".") or path.name in NOT_OURS):
                yield from files(path)
        elif path.suffix in TEXT and not (path.name == GIT_FILE or path.name.startswith(".env")):
            yield path


def test_the_repository_speaks_of_nothing_that_is_not_in_it() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files(ROOT)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1)
        if ELSEWHERE.search(line)
    ]
    assert found == []


def test_the_picture_of_the_architecture_has_every_layer() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    layers = re.search(r'id = "layers".*?^layers = \[(.*?)^\]', project, re.DOTALL | re.MULTILINE)
    assert layers is not None
    picture = next(block.text for block in blocks(ARCHITECTURE) if block.language == "mermaid")
    # The command and the door, told in words
    shown = {"__main__", "app", "server", "testing"}
    planned = {  # a name in parentheses may be missing
        name
        for name in re.findall(r"\((\w+)\)", layers[1])
        if not (ROOT / "mochi_server" / name).exists()
    }
    names = set(re.findall(r"\w+", layers[1])) - shown - planned
    assert {name for name in names if not re.search(rf"\b{name}\b", picture)} == set()


def on_the_map() -> Iterator[str]:
    """Every path of the map; a name without a folder is in the folder before it."""
    for _, cell in rows(section(ARCHITECTURE, "## Where things are")):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            if "/" in name:
                folder = name[: name.rindex("/") + 1]
                yield name
            else:
                yield folder + name


def test_everything_on_the_map_is_there() -> None:
    assert [name for name in on_the_map() if not (ROOT / name).exists()] == []


def test_every_folder_of_code_is_on_the_map() -> None:
    paths = set(on_the_map())
    whole = tuple(path for path in paths if path.endswith("/"))
    folders = {f"{path.parent.as_posix()}/" for path in sources() if path.name != "__init__.py"}
    known = {path[: path.rindex("/") + 1] for path in paths}
    assert {one for one in folders if one not in known and not one.startswith(whole)} == set()


@pytest.mark.parametrize("title", ["## Where to change what", "## Where to look first"])
def test_every_file_that_the_architecture_names_is_there(title: str) -> None:
    cells = " ".join(cell for _, cell in rows(section(ARCHITECTURE, title)))
    files = [name for name in re.findall(r"`([^`]+)`", cells) if "/" in name]
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


RELIABILITY = ROOT / "docs" / "explanation" / "reliability.md"


def test_every_fault_has_a_test_that_exists() -> None:
    faults = rows(RELIABILITY.read_text("utf-8"))
    assert faults
    for fault in faults:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", fault[-1])
        assert named, fault[0]
        for path, name in named:
            text = (ROOT / "tests" / path).read_text("utf-8")
            assert not name or f"def {name}(" in text, f"{path} has no {name}"


CONFORMANCE = REFERENCE / "conformance.md"
DOCUMENTS = headings(CONFORMANCE, 2)

TOP_LEVEL = {
    "The server": [*map(str, range(1, 21)), "A", "B"],
    "The plan": [*map(str, range(11))],
    "Dual-mode chat": ["1", "2"],
    "The MCP agent platform": [*map(str, range(1, 9))],
    "Server test mode": [*map(str, range(1, 10))],
}


def sections(document: str) -> list[list[str]]:
    """Number, title, state, tests and remark of every section of a document."""
    return list(rows(section(CONFORMANCE, f"## {document}")))


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


DJANGOS = {"Migration", "Command"}
"""Names of classes that Django prescribes."""


def test_a_class_name_occurs_once() -> None:
    modules = defaultdict(list)
    for path in sources():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.as_posix())
    twice = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in DJANGOS} == {}
