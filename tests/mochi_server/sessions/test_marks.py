"""Marks by which processes tell each other what they work on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, StorageError
from mochi_server.sessions.marks import FileMarks, MemoryMarks


@pytest.fixture(params=["files", "memory"])
def marks(request, tmp_path):
    return FileMarks(tmp_path / "a" / "b") if request.param == "files" else MemoryMarks()


def test_one_holds_a_mark_at_a_time(marks):
    held = marks.take("one")
    assert marks.take("one") is None
    other = marks.take("two")
    held.let_go(done=True)
    held.let_go(done=True)
    again = marks.take("one")
    assert again is not None
    for each in (again, other):
        each.let_go(done=True)
    assert marks.names() == []


def test_a_holder_sees_that_somebody_asks(marks):
    marks.ask_for("one")
    held, other = marks.take("one"), marks.take("two")
    assert not held.is_wanted
    marks.ask_for("one")
    assert held.is_wanted
    assert not other.is_wanted


def test_marks_stay_until_the_work_is_done(tmp_path):
    marks = FileMarks(tmp_path)
    for name in ("one", "two"):
        marks.set(name)
        marks.ask_for(name)  # which also makes it the latest
    assert marks.names() == ["two", "one"]
    marks.take("one").let_go(done=False)
    marks.take("two").let_go(done=True)
    assert FileMarks(tmp_path).names() == ["one"]


def test_a_process_that_is_killed_holds_nothing_and_its_work_stays_marked(tmp_path):
    script = (
        "from pathlib import Path; from mochi_server.sessions.marks import FileMarks;"
        f"held = FileMarks(Path({str(tmp_path)!r})).take('one'); print('held', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    marks = FileMarks(tmp_path)
    with process:
        assert process.stdout.readline() == b"held\n"
        assert marks.take("one") is None
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert marks.names() == ["one"]
    held = marks.take("one")
    assert held is not None
    held.let_go(done=True)


def test_what_is_no_file_of_ours_is_no_mark(tmp_path):
    marks = FileMarks(tmp_path)
    (tmp_path / "not a name").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert marks.names() == []
    before = Path("/etc/passwd").stat().st_mtime_ns
    marks.ask_for("link")
    assert Path("/etc/passwd").stat().st_mtime_ns == before
    with pytest.raises(StorageError):
        marks.take("link")
    with pytest.raises(SessionNotFound):
        marks.take("../outside")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    marks = FileMarks(tmp_path / "file")
    for work in (marks.set, marks.take):
        with pytest.raises(StorageError, match="cannot be used"):
            work("one")
    marks.ask_for("one")
    assert marks.names() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_marks_that_root_makes_belong_to_the_owner_of_the_data(tmp_path):
    """Else a server that is no root could ask for nothing that a command of root's holds."""
    os.chown(tmp_path, 12345, 12345)
    marks = FileMarks(tmp_path / "a" / "b")
    marks.set("one")
    held = marks.take("two")
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {12345}
    held.let_go(done=True)
