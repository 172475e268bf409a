"""Reads the pages of the documentation: headings, tables, code, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = (
    "mochi_server",
    "mochi_project",
    "chat",
    "sessions_app",
    "prompts_app",
    "tools_app",
    "agents_app",
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Every fenced block, in order."""
    found = _FENCE.finditer(page.read_text("utf-8"))
    return [Block(match[2], re.sub(rf"(?m)^{match[1]}", "", match[3])) for match in found]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def headings(page: Path, level: int) -> list[str]:
    """The headings of one level."""
    return re.findall(rf"(?m)^{'#' * level} (.+)$", prose(page))


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    _, _, rest = f"\n{prose(page)}".partition(f"\n{heading}\n")
    assert rest, f"{page.name} has no section {heading!r}"
    return re.split(rf"(?m)^#{{1,{level}}} ", rest)[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, without its head."""
    head = True
    for line in text.splitlines():
        if not line.startswith("|"):
            head = True
        elif set(line) <= set("|-: "):
            head = False
        elif not head:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def code(cell: str) -> str:
    """The text of a cell that is one piece of code; empty for another cell."""
    match = re.fullmatch(r"`([^`]+)`", cell)
    return match[1] if match else ""


def codes(text: str) -> set[str]:
    """Every piece of code in a text."""
    return set(re.findall(r"`([^`\n]+)`", text))


def links(page: Path) -> list[str]:
    """The targets of every link."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """What a link can point to, as forges make it of headings."""
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def sources() -> dict[Path, str]:
    """Every module of the product."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted(files)}
