"""Which conversation a model has read last, between processes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mochi_server.services.summaries.last_read import LastReadConversations


def test_processes_of_one_folder_know_what_the_others_have_read(tmp_path: Path):
    folder = tmp_path / "summaries"
    one, other = LastReadConversations(folder), LastReadConversations(folder)
    one.note("weights", "a1b2c3d4e5")
    assert other.session_of("weights") == "a1b2c3d4e5"
    other.forget("weights")
    assert one.session_of("weights") is None


def test_only_the_owner_can_read_the_folders_that_are_made_for_it(tmp_path: Path):
    folder = tmp_path / ".mochi" / "summaries"
    before = os.umask(0)
    try:
        LastReadConversations(folder).note("weights", "a1b2c3d4e5")
    finally:
        os.umask(before)
    made = (folder.parent, folder, *folder.iterdir())
    modes = [stat.filemode(path.stat().st_mode) for path in made]
    assert modes == ["drwx------", "drwx------", "-rw-------"]
