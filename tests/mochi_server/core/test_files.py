"""Files that are replaced in one step."""

import errno
import os
import re
import resource
import stat
import sys
from pathlib import Path

import pytest

from mochi_server.core.files import (
    MAX_FILES,
    flush_folder,
    make_folder,
    raise_file_limit,
    replace_file,
)
from tests.support.server import running_server


def test_a_new_file_never_replaces_one(tmp_path):
    replace_file(tmp_path / "a.md", [b"mine"], new=True)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "a.md", [b"yours"], new=True)
    assert (tmp_path / "a.md").read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_a_group_that_cannot_be_kept_leaves_the_new_one_no_more_than_everybody(
    tmp_path, monkeypatch
):
    """As the owner of a file of a group that one does not belong to; root may give any group."""

    def refuse(handle: int, uid: int, gid: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    os.chown(path, -1, _another_group(path))
    path.chmod(0o664)
    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(path, [b"new"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def _another_group(path: Path) -> int:
    mine = path.stat().st_gid
    others = [54321] if os.geteuid() == 0 else [gid for gid in os.getgroups() if gid != mine]
    if not others:
        pytest.skip("no second group")
    return others[0]


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "a.json").symlink_to(tmp_path / "precious")
    replace_file(tmp_path / "a.json", [b"new"])
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_a_file_system_that_cannot_flush_a_folder_does_no_harm():
    flush_folder(Path("/proc"))  # says EINVAL


def test_a_folder_that_the_disk_fails_to_flush_is_an_error(tmp_path, monkeypatch):
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        flush_folder(tmp_path)


def test_a_disk_without_hard_links_takes_a_new_file_and_replaces_none(tmp_path, monkeypatch):
    """As FAT, and some network drives."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    replace_file(tmp_path / "a.md", [b"mine"], new=True)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "a.md", [b"yours"], new=True)
    assert (tmp_path / "a.md").read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_folders_that_are_made_for_a_file_are_as_durable_as_the_file(tmp_path, monkeypatch):
    flushed, flush = set(), os.fsync

    def note(handle: int) -> None:
        flushed.add(os.fstat(handle).st_ino)
        flush(handle)

    monkeypatch.setattr(os, "fsync", note)
    file = tmp_path / "data" / "chats" / "one.json"
    replace_file(file, [b"new"])
    assert {path.stat().st_ino for path in (file, *file.parents[:3])} <= flushed


def test_a_folder_is_made_in_one_that_may_not_be_listed(tmp_path):
    tmp_path.chmod(0o300)
    try:
        make_folder(tmp_path / "new")
        assert (tmp_path / "new").is_dir()
    finally:
        tmp_path.chmod(0o700)


FEW = (
    "import resource, runpy; "
    "limits = resource.getrlimit(resource.RLIMIT_NOFILE); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (100, min(limits[1], 4000))); "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)
UVICORN = ("-c", FEW.format(module="uvicorn"), "mochi_project.asgi:application", "--port", "0")
OURS = ("-c", FEW.format(module="mochi_server"), "--port", "0")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at another process's limits")
@pytest.mark.parametrize(
    ("command", "ready"),
    [(OURS, r"listens on (http://\S+)"), (UVICORN, r"running on (http://\S+)")],
    ids=["mochi-server", "uvicorn"],
)
async def test_a_server_may_open_as_many_files_as_the_system_allows(tmp_path, command, ready):
    async with running_server(
        data_dir=tmp_path, command=command, ready=re.compile(ready)
    ) as server:
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        assert soft == hard


class Limits:
    """A system with these limits, which takes no more than ``most``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int) -> None:
        self.now, self.most = (soft, hard), most
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", self.set)

    def set(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self.most:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "most", "after"),
    [
        (1024, 4096, 10**9, 4096),
        (1024, 2**31, 2**31, MAX_FILES),  # a container without limits
        (256, resource.RLIM_INFINITY, 10_240, 10_240),  # macOS
        (256, resource.RLIM_INFINITY, 2**31, MAX_FILES),
        (256, 512, 128, 256),
        (4096, 4096, 10**9, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10**9, resource.RLIM_INFINITY),
        (2**30, 2**31, 2**31, 2**30),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes_and_never_lowered(
    monkeypatch, soft, hard, most, after
):
    limits = Limits(monkeypatch, soft, hard, most)
    raise_file_limit()
    assert limits.now == (after, hard)
