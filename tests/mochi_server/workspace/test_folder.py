"""What can be done with the files of a workspace, and what a hostile folder cannot do."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from mochi_server.workspace.beneath import MAX_DEPTH
from mochi_server.workspace.folder import FileEntry, WorkspaceFolder
from mochi_server.workspace.removal import remove_tree

MOST = 1_000


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    (tmp_path / "secret").write_bytes(b"outside")
    return path


@pytest.fixture
def folder(place):
    with WorkspaceFolder(place) as opened:
        yield opened


def reason(action, *args, **options):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its text is the result
        action(*args, **options)
    return caught.value.strerror


def names(folder, *args, **options):
    return [entry.path for entry in folder.entries(*args, **options)]


def test_a_file_is_written_with_its_folders_and_read(place, folder):
    assert folder.write("a/b/c.txt", [b"one ", b"two"]) is True
    assert folder.read("a/b/c.txt", MOST) == b"one two"
    assert folder.write("a/b/c.txt", [b"new"]) is False
    assert (place / "a/b/c.txt").read_bytes() == b"new"
    assert names(folder, recursive=True) == ["a", "a/b", "a/b/c.txt"]


def test_a_replaced_file_does_not_run_as_its_owner(place, folder):
    """A model could have set the bits, and a person would put another program there."""
    (place / "run.sh").write_text("old")
    (place / "run.sh").chmod(0o6755)
    folder.write("run.sh", [b"new"])
    assert stat.S_IMODE((place / "run.sh").stat().st_mode) == 0o755


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(place, folder):
    folder.write("file", [b"old"])

    def parts():
        yield b"new"
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        folder.write("file", parts())
    assert folder.read("file", MOST) == b"old"
    assert os.listdir(place) == ["file"]  # noqa: PTH208


def test_too_long_files_are_not_read(place, folder):
    folder.write("file", [b"x" * (MOST + 1)])
    assert reason(folder.read, "file", MOST) == "It is too long: 1,001 bytes, of at most 1,000"
    with (place / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert "too long" in reason(folder.read, "sparse", MOST)


def test_what_is_no_file_is_not_read_and_not_replaced(place, folder):
    os.mkfifo(place / "pipe")
    (place / "folder").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(place / "socket"))
    assert reason(folder.read, "pipe", MOST) == "It is a named pipe, not a file"
    assert reason(folder.read, "socket", MOST) == "It is a socket or a device, not a file"
    assert reason(folder.read, "folder", MOST) == "It is a folder, not a file"
    assert reason(folder.write, "pipe", [b""]) == "It is a named pipe, not a file"
    assert reason(folder.write, "folder", [b""]) == "It is a folder, not a file"
    assert reason(folder.write, "", [b""]) == "It is a folder, not a file"
    assert reason(folder.write, "folder/..", [b""]) == "It is a folder, not a file"
    kinds = {entry.path: entry.kind for entry in folder.entries()}
    assert kinds == {"folder": "folder", "pipe": "other", "socket": "other"}
    for name in ("pipe", "socket", "folder"):
        folder.delete(name)
    assert names(folder) == []
    listener.close()


def test_a_device_is_not_read(place, folder):
    try:
        os.mknod(place / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device")
    assert reason(folder.read, "device", MOST) == "It is a device, not a file"


def test_links_are_read_inside_and_never_written(place, folder):
    folder.write("file", [b"inside"])
    (place / "in").symlink_to("file")
    (place / "out").symlink_to("../secret")
    (place / "new").symlink_to("../made-outside")
    assert folder.read("in", MOST) == b"inside"
    assert reason(folder.read, "out", MOST) == "It leads out of the folder"
    for name in ("in", "out", "new"):
        assert reason(folder.write, name, [b"x"]) == "It is a link, not a file"
        folder.delete(name)
    assert sorted(os.listdir(place.parent)) == ["root", "secret"]  # noqa: PTH208
    assert (place.parent / "secret").read_bytes() == b"outside"


def test_a_linked_folder_outside_is_never_used(place, folder):
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"outside")
    (place / "link").symlink_to("../outside")
    assert reason(folder.write, "link/new", [b"x"]) == "It leads out of the folder"
    assert reason(folder.write, "link/a/b", [b"x"]) == "It leads out of the folder"
    assert reason(folder.delete, "link/file") == "It leads out of the folder"
    assert reason(list, folder.entries("link")) == "It leads out of the folder"
    assert names(folder, recursive=True) == ["link"]
    folder.delete("link", recursive=True)
    assert os.listdir(outside) == ["file"]  # noqa: PTH208


def test_a_hard_link_is_neither_read_nor_written_through(place, folder):
    (place / "other-name").hardlink_to(place.parent / "secret")
    assert "hard link" in reason(folder.read, "other-name", MOST)
    folder.write("other-name", [b"mine"])
    assert (place.parent / "secret").read_bytes() == b"outside"
    assert folder.read("other-name", MOST) == b"mine"


def test_folders_are_deleted_only_when_asked_for(place, folder):
    folder.write("a/b/file", [b""])
    assert reason(folder.delete, "a") == "The folder is not empty"
    with pytest.raises(FileNotFoundError):
        folder.delete("nothing")
    for path in ("", ".", "..", "a/.."):
        with pytest.raises(OSError):  # noqa: PT011
            folder.delete(path, recursive=True)
    folder.delete("a", recursive=True)
    assert names(folder) == []


def test_a_list_is_sorted_and_says_what_things_are(place, folder):
    folder.write("b", [b"12345"])
    folder.write("a/z", [b""])
    folder.write("a.txt", [b""])
    folder.write("node_modules/x/y", [b""])
    listed = list(folder.entries(recursive=True, skipped=("node_modules",)))
    assert [entry.path for entry in listed] == ["a", "a/z", "a.txt", "b", "node_modules"]
    assert listed[3] == FileEntry("b", "file", 5, (place / "b").stat().st_mtime_ns)
    assert names(folder, "a") == ["a/z"]
    assert names(folder, "node_modules/x", recursive=True) == ["node_modules/x/y"]
    assert reason(list, folder.entries("b")) == "A part of the path is a file, not a folder"


def test_names_that_are_not_text_are_shown_and_hide_nothing(place, folder):
    (place / os.fsdecode(b"caf\xe9")).mkdir()
    (place / os.fsdecode(b"caf\xe9/file")).touch()
    (place / "z").touch()
    assert names(folder, recursive=True) == ["caf\\xe9", "caf\\xe9/file", "z"]


def nested(place, levels):
    """Make folders one in the other, deeper than a path can name."""
    handle = os.open(place, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


def test_endless_nesting_is_listed_in_part_and_removed_whole(place, folder):
    nested(place, 1_500)
    (place / "d" / "side").mkdir()
    try:
        assert len(names(folder, recursive=True)) == MAX_DEPTH + 1
        folder.delete("d", recursive=True)
        assert not (place / "d").exists()
    finally:  # pytest would fail to remove it
        subprocess.run(["rm", "-rf", place / "d"], check=True)


def test_a_folder_that_turns_into_a_link_is_not_emptied(place):
    """One thread swaps folders for links that lead out while the tree is removed."""
    outside = place.parent / "outside"
    outside.mkdir()
    kept = [outside / f"file{number}" for number in range(20)]
    for file in kept:
        file.touch()
    ended = threading.Event()

    def swap():
        number = 0
        while not ended.is_set():
            number += 1
            try:
                (place / "tree" / f"link{number}").symlink_to("../../outside")
                (place / "tree" / "d").rename(place / "tree" / f"was{number}")
                (place / "tree" / f"link{number}").rename(place / "tree" / "d")
            except OSError:
                continue

    handle = os.open(place, os.O_RDONLY)
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            (place / "tree").mkdir(exist_ok=True)
            with suppress(OSError):
                (place / "tree" / "d").mkdir()
            try:
                remove_tree(handle, "tree")
            except OSError as error:
                assert error.errno == errno.ENOTEMPTY  # noqa: PT017 - it is filled all the time
    finally:
        ended.set()
        thread.join()
    remove_tree(handle, "tree")
    os.close(handle)
    assert all(file.exists() for file in kept)
    assert not (place / "tree").exists()


REMOVE = """
import os, sys
from mochi_server.workspace.folder import WorkspaceFolder
os.setgid(65534), os.setuid(65534)
os.makedirs(sys.argv[1] + "/tree/a/b/c")
open(sys.argv[1] + "/tree/a/b/c/file", "w").close()
for path in ("tree/a/b/c", "tree/a/b", "tree/a"):
    os.chmod(os.path.join(sys.argv[1], path), 0)
with WorkspaceFolder(sys.argv[1]) as folder:
    folder.delete("tree", recursive=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_folders_without_permissions_are_removed(place):
    for path in (place, *place.parents):
        if path.owner() == "root" and path.name:
            path.chmod(0o777)
    subprocess.run([sys.executable, "-c", REMOVE, place], check=True, timeout=100)
    assert os.listdir(place) == []  # noqa: PTH208
