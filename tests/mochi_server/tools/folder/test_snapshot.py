"""Snapshots of a folder's files, and the stamp."""

from __future__ import annotations

import itertools
import os

from mochi_server.tools.folder import snapshot
from mochi_server.tools.folder.snapshot import DEEPEST, check_folder, write_stamp
from tests.support.tools import write_tools


def test_a_snapshot_sees_files_and_no_caches(tmp_path):
    folder = write_tools(tmp_path / "tools", init="")
    first = check_folder(folder)
    assert not first.is_empty
    for name in ("__pycache__", ".git", ".venv", "venv", "site-packages", "node_modules"):
        write_tools(folder / name, init="")
    (folder / "data.json").write_text("{}")
    assert check_folder(folder) == first
    write_tools(folder / "sub" / "below", init="")
    assert check_folder(folder) != first


def test_a_snapshot_sees_a_file_that_was_put_in_place_of_another(tmp_path):
    folder = write_tools(tmp_path / "tools", init="A = 1\n")
    place, times = folder / "__init__.py", (1_700_000_000, 1_700_000_000)
    os.utime(place, times)
    first = check_folder(folder)
    (folder / "new").write_text("A = 2\n")
    os.utime(folder / "new", times)
    (folder / "new").replace(place)
    assert check_folder(folder) != first


def test_a_snapshot_ends_where_links_go_round_in_a_circle(tmp_path):
    folder = write_tools(tmp_path / "tools", init="")
    for name in ("one", "two"):
        (folder / name).symlink_to(folder)
    (folder / "nowhere.py").symlink_to(folder / "missing")
    assert check_folder(folder) == check_folder(folder)


def test_a_snapshot_is_bounded_in_depth(tmp_path):
    folder = deep = write_tools(tmp_path / "tools", init="")
    for number in range(DEEPEST + 1):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    first = check_folder(folder)
    write_tools(deep, init="")
    assert check_folder(folder) == first
    write_tools(deep.parent, init="")
    assert check_folder(folder) != first


def test_a_snapshot_is_bounded_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_ENTRIES", 20)
    for number in range(30):
        (tmp_path / f"m{number}.py").touch()
    changes = 0
    for place in tmp_path.iterdir():
        before = check_folder(tmp_path)
        place.write_text("A = 1\n")
        changes += check_folder(tmp_path) != before
    assert changes == 20


def test_a_file_instead_of_a_folder_is_left_to_the_loader(tmp_path):
    (tmp_path / "tools").write_text("")
    assert check_folder(tmp_path / "missing").is_empty
    assert not check_folder(tmp_path / "tools").is_empty


def test_two_stamps_are_never_taken_for_one(tmp_path):
    stamp = tmp_path / ".mochi" / "reload-tools"
    snapshots = [check_folder(tmp_path, stamp)]
    for _ in range(20):
        write_stamp(stamp)
        snapshots.append(check_folder(tmp_path, stamp))
    assert all(one != two for one, two in itertools.pairwise(snapshots))
