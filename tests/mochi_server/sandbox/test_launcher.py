"""What the launcher counts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mochi_server.sandbox import launcher
from mochi_server.sandbox.launcher import DiskWatch, OverLimit, files_in_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.mark.parametrize("folder", ["/tmp", "/", "/not/there"])
def test_files_of_the_machine_are_none_of_a_sandbox_that_is_being_made(folder: str) -> None:
    assert files_in_memory(os.getpid(), folder) == 0


def test_a_machine_that_stood_still_during_a_look_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, usage = 1000.0, launcher.usage
    limits: Any = {"disk_bytes": 1000, "files": 100}
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=time.thread_time)
    monkeypatch.setattr(launcher, "time", clock)
    watch = DiskWatch(os.getpid(), [str(tmp_path)], [], limits)

    def usage_late(*arguments: Any) -> tuple[int, int]:
        nonlocal now
        now += 10
        return usage(*arguments)

    monkeypatch.setattr(launcher, "usage", usage_late)
    watch.look([])
    (tmp_path / "large").write_bytes(bytes(100_000))
    now += 1
    with pytest.raises(OverLimit):
        watch.look([])
