"""The map of the architecture names what is there, and every folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.pages import ROOT, rows, section, sources

PAGE = ROOT / "docs" / "explanation" / "architecture.md"


def named() -> Iterator[str]:
    """Every path of the map; a name without a folder is in the folder before it."""
    for _, cell in rows(section(PAGE, "## Where things are")):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            if "/" in name:
                folder = name[: name.rindex("/") + 1]
                yield name
            else:
                yield folder + name


def test_everything_on_the_map_is_there() -> None:
    assert [name for name in named() if not (ROOT / name).exists()] == []


def test_every_folder_of_code_is_on_the_map() -> None:
    paths = set(named())
    whole = tuple(path for path in paths if path.endswith("/"))
    folders = {f"{path.parent.as_posix()}/" for path in sources() if path.name != "__init__.py"}
    known = {path[: path.rindex("/") + 1] for path in paths}
    assert {one for one in folders if one not in known and not one.startswith(whole)} == set()


def test_every_file_to_look_at_first_is_there() -> None:
    cells = " ".join(cell for _, cell in rows(section(PAGE, "## Where to look first")))
    files = [name for name in re.findall(r"`([^`]+)`", cells) if "/" in name]
    assert files
    assert [name for name in files if not (ROOT / name).is_file()] == []
