"""The files of the page: small, and vendored ones as their packages have them."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256
from pathlib import Path

from mochi_project.http.page import FOLDER

VENDOR = FOLDER / "vendor"
MODULES = sorted((FOLDER / "app").rglob("*.js"))
STYLES = sorted((FOLDER / "styles").glob("*.css"))
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "([^"]+)"', re.MULTILINE)
MOST_BYTES = 160_000
MOST_LINES = 300


def imported(module: Path) -> set[Path]:
    """The modules that a module loads before it runs."""
    return {(module.parent / name).resolve() for name in IMPORT.findall(module.read_text())}


def test_the_first_paint_needs_at_most_160_kb():
    loaded = {FOLDER / "index.html", FOLDER / "icon.svg", *STYLES}
    new = {FOLDER / "app/main.js"}
    while new:
        loaded |= new
        new = set().union(*map(imported, new)) - loaded
    assert {FOLDER / "app/views/app.js", VENDOR / "marked/marked.esm.js"} <= loaded
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) <= MOST_BYTES


def test_modules_are_short():
    for path in [*MODULES, *STYLES]:
        is_list = path.name == "texts.js"
        assert is_list or len(path.read_text().splitlines()) <= MOST_LINES, path


def test_every_vendored_file_is_as_its_package_has_it():
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    hashes = {
        VENDOR / folder / name: digest
        for folder, package in manifest.items()
        for name, digest in package["sha256"].items()
    }
    files = {path for path in VENDOR.rglob("*") if path.is_file()}
    assert files - {VENDOR / "manifest.json"} == set(hashes)
    for path, digest in hashes.items():
        assert sha256(path.read_bytes()).hexdigest() == digest, path
    for folder, package in manifest.items():
        assert package["version"]
        assert package["licence"]
        assert list((VENDOR / folder).glob("LICENSE*"))


def test_every_text_that_is_used_exists_and_no_other():
    texts = (FOLDER / "app/texts.js").read_text()
    defined = set(re.findall(r"^  (\w+):", texts, re.MULTILINE))
    used = set()
    for path in MODULES:
        used |= set(re.findall(r"\bt\.(\w+)", path.read_text()))
    assert used == defined


def test_nothing_comes_from_other_servers():
    for path in [*MODULES, *STYLES, FOLDER / "index.html"]:
        assert not re.search(r"https?://(?!www\.w3\.org/)", path.read_text()), path


def test_markup_of_others_is_only_shown_by_the_two_modules_that_clean_it():
    writing = {
        path.name
        for path in MODULES
        if re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", path.read_text())
    }
    assert writing == {"code.js", "markdown-view.js"}


def test_what_may_have_the_focus_is_not_disabled():
    """`aria-disabled` refuses as well, and leaves the focus where it is."""
    disabling = {path.name for path in MODULES if " disabled=${" in path.read_text()}
    assert disabling == {"tool-list.js", "tool-menu.js"}  # by another field, which has the focus
