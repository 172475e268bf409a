"""A path below a folder never leads out of it, by the kernel's way and by the walk."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.workspace import beneath
from mochi_server.workspace.beneath import FOLDER, MAX_DEPTH, READ, open_beneath, walk_beneath

SECRET = b"outside"
HANDLES = Path("/proc/self/fd")

needs_openat2 = pytest.mark.skipif(not beneath.has_openat2(), reason="needs openat2")
WAYS = [
    pytest.param(open_beneath, marks=needs_openat2, id="openat2"),
    pytest.param(walk_beneath, id="walk"),
]


@pytest.fixture
def root(tmp_path):
    """A folder beside a secret, with a file and a folder."""
    (tmp_path / "secret").write_bytes(SECRET)
    folder = tmp_path / "root"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "file").write_bytes(b"inside")
    (folder / "sub" / "file").write_bytes(b"in sub")
    return folder


def content(way, folder, path, flags=READ):
    handle = os.open(folder, FOLDER)
    try:
        file = way(handle, path, flags)
        try:
            return os.read(file, 100)
        finally:
            os.close(file)
    finally:
        os.close(handle)


def error_of(way, folder, path, flags=READ):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is the result
        content(way, folder, path, flags)
    return errno.errorcode[caught.value.errno]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file", b"inside"),
        ("./file", b"inside"),
        ("sub//file", b"in sub"),
        ("sub/../file", b"inside"),
        ("sub/deep/../../file", b"inside"),
        ("link", b"inside"),
        ("sub/up", b"inside"),
        ("folder/file", b"in sub"),
        ("folder/../file", b"inside"),
        ("two", b"inside"),
    ],
)
def test_a_path_inside_is_opened(root, way, path, expected):
    (root / "link").symlink_to("file")
    (root / "two").symlink_to("link")
    (root / "sub" / "up").symlink_to("../file")
    (root / "folder").symlink_to("sub")
    assert content(way, root, path) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret",
        "../root/file",
        "sub/../../secret",
        "sub/deep/../../../secret",
        "./../secret",
        "sub/./.././../secret",
        "/etc/passwd",
        "//etc/passwd",
        "absolute",
        "relative",
        "sub/relative",
        "out/secret",
        "out/root/file",
        "chain",
        "absolute-folder/passwd",
        "own-absolute",
        "dots/../secret",
    ],
)
def test_a_path_that_leads_out_is_refused(root, way, path):
    (root / "absolute").symlink_to(root.parent / "secret")
    (root / "own-absolute").symlink_to(root / "file")
    (root / "absolute-folder").symlink_to("/etc")
    (root / "relative").symlink_to("../secret")
    (root / "sub" / "relative").symlink_to("../../secret")
    (root / "out").symlink_to("..")
    (root / "chain").symlink_to("sub/relative")
    (root / "dots").symlink_to("sub/..")
    assert error_of(way, root, path) == "EXDEV"


@pytest.mark.parametrize("way", WAYS)
def test_odd_paths_are_named_errors(root, way):
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nothing")
    assert error_of(way, root, "loop") == "ELOOP"
    assert error_of(way, root, "loop/file") == "ELOOP"
    assert error_of(way, root, "dangling") == "ENOENT"
    assert error_of(way, root, "file/file") == "ENOTDIR"
    assert error_of(way, root, "nothing/..") == "ENOENT"
    assert error_of(way, root, "fi\0le") == "EINVAL"
    assert error_of(way, root, "\udcff") == "EINVAL"
    assert error_of(way, root, "n" * 256) == "ENAMETOOLONG"
    assert error_of(way, root, "n/" * 600) == "ENAMETOOLONG"
    assert error_of(way, root, "n/" * (MAX_DEPTH + 1)) == "ENAMETOOLONG"
    assert error_of(way, root, "dangling", READ | os.O_NOFOLLOW) == "ELOOP"


@pytest.mark.parametrize("way", WAYS)
def test_the_kernels_own_links_are_not_followed(root, way):
    inside = os.open(root / "file", READ)
    try:
        assert error_of(way, "/proc", f"self/fd/{inside}") in {"ELOOP", "EXDEV"}
        assert error_of(way, "/proc", f"{os.getpid()}/root/etc/passwd") in {"ELOOP", "EXDEV"}
        assert error_of(way, "/proc", f"{os.getpid()}/cwd") in {"ELOOP", "EXDEV"}
    finally:
        os.close(inside)


@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_does_not_make_anybody_wait(root, way):
    os.mkfifo(root / "pipe")
    assert content(way, root, "pipe") == b""


@pytest.mark.parametrize("way", WAYS)
def test_no_handle_is_left_open(root, way):
    (root / "out").symlink_to("sub/../..")
    before = len(list(HANDLES.iterdir()))
    for path in ("sub/deep/../file", "out/secret", "nothing/at/all", "sub/deep/nothing"):
        with suppress(OSError):
            content(way, root, path)
    assert len(list(HANDLES.iterdir())) == before


SWAPS = 3_000


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_turns_into_a_link_while_it_is_opened_leads_nowhere(root, way):
    """One thread swaps a folder for a link that leads out, as fast as it can."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(SECRET)
    (root / "link").symlink_to("../outside")
    handle = os.open(root, FOLDER)
    ended = threading.Event()
    swaps = 0
    sub, link, folder = (root / name for name in ("sub", "link", "folder"))

    def swap():
        nonlocal swaps
        while not ended.is_set():
            sub.rename(folder)
            link.rename(sub)
            sub.rename(link)
            folder.rename(sub)
            swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    seen = {"inside": 0, "refused": 0, "gone": 0}
    try:
        while swaps < SWAPS:
            for path in ("sub/file", "sub/../sub/file", "sub/deep/../file"):
                seen[_seen(way, handle, path)] += 1
    finally:
        ended.set()
        thread.join()
        os.close(handle)
    assert seen["inside"]
    assert seen["refused"] + seen["gone"]


def _seen(way, root, path):
    try:
        file = way(root, path, READ)
    except FileNotFoundError:
        return "gone"
    except OSError as error:
        assert error.errno in {errno.EXDEV, errno.ENOTDIR, errno.ELOOP}  # noqa: PT017
        return "refused"
    found = os.read(file, 100)
    os.close(file)
    assert found == b"in sub"
    return "inside"


NAMES = ["a", "b", "c"]
STEPS = st.lists(st.sampled_from([*NAMES, "..", "."]), min_size=1, max_size=6).map("/".join)


@needs_openat2
@given(
    links=st.lists(st.tuples(STEPS, STEPS), max_size=6),
    folders=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=6),
    paths=st.lists(STEPS, min_size=1, max_size=8),
)
def test_the_walk_does_what_the_kernel_does(tmp_path_factory, links, folders, paths):
    root = tmp_path_factory.mktemp("same")
    for names in folders:
        root.joinpath(*names).mkdir(parents=True, exist_ok=True)
    handle = os.open(root, FOLDER)
    try:
        for place, target in links:
            parent, _, name = place.rpartition("/")
            if name not in NAMES:
                continue
            try:
                folder = open_beneath(handle, parent, FOLDER)
            except OSError:
                continue
            try:
                os.symlink(target, name, dir_fd=folder)
            except FileExistsError:
                pass
            finally:
                os.close(folder)
        for path in paths:
            assert _outcome(open_beneath, handle, path) == _outcome(walk_beneath, handle, path)
    finally:
        os.close(handle)


def _outcome(way, root, path):
    try:
        handle = way(root, path, READ)
    except OSError as error:
        return errno.errorcode[error.errno]
    try:
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)
