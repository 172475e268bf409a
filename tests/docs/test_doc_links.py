"""Links and citations lead somewhere, and the repository speaks of itself alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, sources

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
    page = ROOT / "docs" / "explanation" / "architecture.md"
    picture = next(block.text for block in blocks(page) if block.language == "mermaid")
    # The command and the door, told in words
    shown = {"__main__", "app", "server", "testing"}
    planned = {  # a name in parentheses may be missing
        name
        for name in re.findall(r"\((\w+)\)", layers[1])
        if not (ROOT / "mochi_server" / name).exists()
    }
    names = set(re.findall(r"\w+", layers[1])) - shown - planned
    assert {name for name in names if not re.search(rf"\b{name}\b", picture)} == set()
