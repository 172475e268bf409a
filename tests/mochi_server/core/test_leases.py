"""Leases by which processes divide work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mochi_server.core.leases import FileLeases, MemoryLeases
from mochi_server.errors import StorageError


@pytest.fixture(params=["files", "memory"])
def leases(request, tmp_path):
    return FileLeases(tmp_path / "a" / "b") if request.param == "files" else MemoryLeases()


def test_one_holds_a_lease_at_a_time(leases):
    lease = leases.acquire("one")
    assert leases.acquire("one") is None
    other = leases.acquire("two")
    lease.release(done=True)
    lease.release(done=True)
    again = leases.acquire("one")
    assert again is not None
    for each in (again, other):
        each.release(done=True)
    assert leases.pending() == []


def test_a_holder_sees_that_another_requests_its_lease(leases):
    leases.request("one")
    lease, other = leases.acquire("one"), leases.acquire("two")
    assert not lease.is_requested
    leases.request("one")
    assert lease.is_requested
    assert not other.is_requested


def test_work_is_pending_until_it_is_done(tmp_path):
    leases = FileLeases(tmp_path)
    for name in ("one", "two"):
        leases.add(name)
        leases.request(name)  # which also makes it the latest
    assert leases.pending() == ["two", "one"]
    leases.acquire("one").release(done=False)
    leases.acquire("two").release(done=True)
    assert FileLeases(tmp_path).pending() == ["one"]


def test_a_process_that_is_killed_holds_nothing_and_its_work_stays_pending(tmp_path):
    script = (
        "from pathlib import Path; from mochi_server.core.leases import FileLeases;"
        f"lease = FileLeases(Path({str(tmp_path)!r})).acquire('one');"
        "print('held', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    leases = FileLeases(tmp_path)
    with process:
        assert process.stdout.readline() == b"held\n"
        assert leases.acquire("one") is None
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert leases.pending() == ["one"]
    lease = leases.acquire("one")
    lease.release(done=True)


def test_a_file_of_another_kind_is_no_lease(tmp_path):
    leases = FileLeases(tmp_path)
    (tmp_path / "not a name").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert leases.pending() == []
    before = Path("/etc/passwd").stat().st_mtime_ns
    leases.request("link")
    assert Path("/etc/passwd").stat().st_mtime_ns == before
    with pytest.raises(StorageError):
        leases.acquire("link")
    with pytest.raises(ValueError, match="name of a lease"):
        leases.acquire("../outside")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    leases = FileLeases(tmp_path / "file")
    for work in (leases.add, leases.acquire):
        with pytest.raises(StorageError, match="cannot be used"):
            work("one")
    leases.request("one")
    assert leases.pending() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_leases_that_root_makes_belong_to_the_owner_of_the_data(tmp_path):
    """Else a server that is no root could ask for nothing that a command of root's holds."""
    os.chown(tmp_path, 12345, 12345)
    leases = FileLeases(tmp_path / "a" / "b")
    leases.add("one")
    lease = leases.acquire("two")
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {12345}
    lease.release(done=True)
