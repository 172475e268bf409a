from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

SECRET = "the secret"
PATHS = ["read_file", "delete_file"]
WRITERS = ["write_file", "append_to_file"]


@pytest.fixture
def folder(data: Path) -> Iterator[Path]:
    """The folder of the tools, empty."""
    place = data / "files"
    kept = data / "files.kept"
    place.rename(kept)
    place.mkdir()
    yield place
    _remove(place)
    kept.rename(place)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink()
    folder.rmdir()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "secret.txt"
    place.write_text(SECRET)
    return place


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def attempt(call: Callable[..., str], tool: str, path: str) -> str:
    more = {"content": "changed"} if tool in WRITERS else {}
    more |= {"overwrite": True} if tool == "write_file" else {}
    with pytest.raises(ValueError, match=r"path|link|not a file|no file|Name a file") as refused:
        call(tool, path=path, **more)
    return str(refused.value)


def test_a_file_is_written_read_extended_found_listed_and_deleted(call, folder):
    assert call("list_files") == "There are no files."
    wrote = call("write_file", path="notes/today.txt", content="Buy milk\n")
    assert wrote == "Wrote 9 characters to notes/today.txt."
    call("append_to_file", path="notes/today.txt", content="Write to Ann\n")
    assert call("read_file", path="notes/today.txt") == "Buy milk\nWrite to Ann\n"
    assert call("list_files") == "notes/today.txt (22 bytes)"
    assert call("find_in_files", words="ANN") == "notes/today.txt:2: Write to Ann"
    assert call("delete_file", path="notes/today.txt") == "Deleted notes/today.txt."
    assert "no file 'notes/today.txt'" in attempt(call, "read_file", "notes/today.txt")
    assert list(folder.rglob("*.*")) == []


def test_a_file_that_is_there_is_not_replaced_by_mistake(call, folder):
    (folder / "a.txt").write_text("old")
    with pytest.raises(ValueError, match="set 'overwrite'"):
        call("write_file", path="a.txt", content="new")
    assert (folder / "a.txt").read_text() == "old"
    call("write_file", path="a.txt", content="new", overwrite=True)
    assert (folder / "a.txt").read_text() == "new"


def test_a_long_file_is_read_in_parts(call, folder):
    (folder / "a.txt").write_text("äbcdef")
    first = call("read_file", path="a.txt", length=4)
    assert first == "äbcd\n[The file goes on; read further with start=4.]"
    assert call("read_file", path="a.txt", start=4, length=4) == "ef"
    assert call("read_file", path="a.txt", start=6) == "The file ends before that."
    (folder / "empty.txt").touch()
    assert call("read_file", path="empty.txt") == "The file is empty."
    for wrong in ({"start": -1}, {"length": 0}, {"length": 100_001}):
        with pytest.raises(ValueError, match="'start' must be"):
            call("read_file", path="a.txt", **wrong)


def test_lists_and_finds_are_bounded_and_say_so(call, folder):
    (folder / "many").mkdir()
    for number in range(1001):
        (folder / "many" / f"{number:04}.txt").write_text("word " + "x" * 400)
    listed = call("list_files").splitlines()
    assert len(listed) == 1001
    assert listed[-1].startswith("... and more")
    found = call("find_in_files", words="word", folder="many").splitlines()
    assert len(found) == 101
    assert all(len(line) < 330 for line in found)
    assert call("find_in_files", words="x" * 400, folder="many").startswith("many/0000.txt:1: word")


def test_what_is_no_text_or_too_large_is_not_searched(call, folder):
    (folder / "binary").write_bytes(b"word\0word")
    (folder / "large").write_text("word" * 300_000)
    assert call("find_in_files", words="word") == "No file has 'word' in it."
    with pytest.raises(ValueError, match="'words' is empty"):
        call("find_in_files", words=" ")
    with pytest.raises(ValueError, match="longer than"):
        call("write_file", path="a", content="x" * 1_000_001)


@pytest.mark.parametrize("tool", PATHS + WRITERS)
@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "notes/../../secret.txt", "..", "/etc/passwd", "a/../b", "", ".", "\0"],
)
def test_no_path_leads_out_of_the_folder(call, folder, tool, path):
    (folder.parent / "secret.txt").write_text(SECRET)
    reason = attempt(call, tool, path)
    assert str(folder) not in reason
    assert (folder.parent / "secret.txt").read_text() == SECRET
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("tool", PATHS + WRITERS)
def test_no_link_is_followed(call, folder, outside, tool):
    (folder / "file").symlink_to(outside)
    (folder / "folder").symlink_to(outside.parent)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "new").symlink_to(outside.parent / "new.txt")
    for path in ("file", "folder/secret.txt", "folder/new.txt", "loop", "loop/a", "new"):
        attempt(call, tool, path)
    assert outside.read_text() == SECRET
    assert names(outside.parent) == ["secret.txt"]
    assert (folder / "file").is_symlink()


def test_lists_and_finds_pass_links_by(call, folder, outside):
    (folder / "file").symlink_to(outside)
    (folder / "folder").symlink_to(outside.parent)
    assert call("list_files") == "There are no files."
    assert call("find_in_files", words="secret") == "No file has 'secret' in it."
    with pytest.raises(ValueError, match="leads through a link"):
        call("list_files", folder="folder")


@pytest.mark.parametrize("tool", PATHS + WRITERS)
def test_a_folder_or_a_pipe_is_no_file_and_nobody_waits_for_it(call, folder, tool):
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    for path in ("sub", "pipe"):
        assert "is not a file" in attempt(call, tool, path)
    assert names(folder) == ["pipe", "sub"]


@pytest.mark.parametrize("tool", PATHS + WRITERS)
def test_a_file_in_the_place_of_a_folder_and_a_name_that_is_too_long_are_told(call, folder, tool):
    (folder / "a").write_text("old")
    for path in ("a/b", "x" * 300):
        more = {"content": "new"} if tool in WRITERS else {}
        with pytest.raises(ValueError, match=r"^.{0,400}$") as refused:
            call(tool, path=path, **more)
        assert str(folder) not in str(refused.value)
    assert (folder / "a").read_text() == "old"


def test_no_half_written_file_is_left_behind(call, folder):
    (folder / "a").mkdir()
    (folder / "a" / "b").mkdir()
    attempt(call, "write_file", "a/b")
    assert names(folder / "a") == ["b"]


PIECES = st.sampled_from(["..", ".", "a", "link", "/", "//", "~", "\0", "..\\", " ", "ü", "%2e%2e"])


@given(
    parts=st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=6), joint=st.sampled_from("/\\")
)
def test_whatever_path_is_given_it_is_inside_or_refused(package, data, parts, joint):
    inside = sys.modules[package.functions["read_file"].function.__module__].inside
    root = (data / "files").resolve()
    path = joint.join(parts)
    try:
        place = inside(path)
    except ValueError:
        return
    assert place == root or root in place.parents
    assert place == Path(os.path.realpath(place))
