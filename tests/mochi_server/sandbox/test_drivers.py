from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from mochi_server.sandbox import (
    SandboxFolder,
    SandboxLimits,
    SandboxSpec,
    make_sandbox,
    watching,
)
from mochi_server.sandbox.bubblewrap import BubblewrapSandbox
from mochi_server.sandbox.mounts import open_place
from mochi_server.sandbox.seccomp import seccomp_filter
from mochi_server.sandbox.watching import DiskWatch, OverLimit, files_in_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


async def test_auto_is_bubblewrap_where_it_works() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    sandbox = make_sandbox("auto")
    assert await sandbox.problem() is None
    assert (sandbox.name, sandbox.confines) == ("bubblewrap", True)


async def test_nothing_takes_the_place_of_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = await make_sandbox("auto").problem()
    assert problem == "the program bwrap is not installed (package bubblewrap)"


async def test_why_bubblewrap_does_not_work_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2; exit 1")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    problem = await BubblewrapSandbox().problem()
    assert problem == (
        "bwrap cannot make a sandbox here: bwrap: No permissions to create a namespace"
    )


async def test_the_driver_that_confines_nothing_is_taken_by_name_only() -> None:
    sandbox = make_sandbox("process")
    assert await sandbox.problem() is None
    assert not sandbox.confines
    assert [make_sandbox(name).name for name in ("bubblewrap", "docker", "process")] == [
        "bubblewrap",
        "docker",
        "process",
    ]


def test_each_kind_of_machine_has_its_own_filter() -> None:
    filters = {seccomp_filter(machine) for machine in ("x86_64", "aarch64")}
    assert len(filters) == 2
    assert all(len(each) % 8 == 0 for each in filters)
    assert seccomp_filter("riscv64") == b""


# What a sandbox is made of


def test_a_folder_has_the_same_path_inside_unless_another_is_named() -> None:
    assert SandboxFolder(path=Path("/srv/data")).target == PurePosixPath("/srv/data")
    moved = SandboxFolder(path=Path("/srv/data"), inside=PurePosixPath("/data"))
    assert moved.target == PurePosixPath("/data")


def test_a_workspace_has_one_writable_folder_and_no_network() -> None:
    spec = SandboxSpec.of_workspace(Path("/srv/one"), limits=SandboxLimits(seconds=30))
    [folder] = spec.folders
    assert folder.writable
    assert (folder.path, folder.target) == (Path("/srv/one"), PurePosixPath("/workspace"))
    assert spec.workdir == PurePosixPath("/workspace")
    assert not spec.network
    assert spec.limits.seconds == 30


# What is counted of a command


@pytest.mark.parametrize("folder", ["/tmp", "/", "/not/there"])
def test_files_of_the_machine_are_none_of_a_sandbox_that_is_being_made(folder: str) -> None:
    assert files_in_memory(os.getpid(), folder) == 0


def test_a_machine_that_stood_still_during_a_look_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, usage = 1000.0, watching.usage
    limits: Any = {"disk_bytes": 1000, "files": 100}
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=time.thread_time)
    monkeypatch.setattr(watching, "time", clock)
    watch = DiskWatch(os.getpid(), [open_place(str(tmp_path))], [], limits)

    def usage_late(*arguments: Any) -> tuple[int, int]:
        nonlocal now
        now += 10
        return usage(*arguments)

    monkeypatch.setattr(watching, "usage", usage_late)
    watch.look([])
    (tmp_path / "large").write_bytes(bytes(100_000))
    now += 1
    with pytest.raises(OverLimit):
        watch.look([])
