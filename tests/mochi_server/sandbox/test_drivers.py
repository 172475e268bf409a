from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mochi_server.sandbox import choose_sandbox, make_sandbox
from mochi_server.sandbox.bubblewrap import BubblewrapSandbox
from mochi_server.sandbox.seccomp import seccomp_filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


async def test_auto_is_bubblewrap_where_it_works() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    choice = await choose_sandbox("auto")
    assert choice.sandbox is not None
    assert (choice.sandbox.name, choice.sandbox.confines) == ("bubblewrap", True)


async def test_nothing_takes_the_place_of_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    choice = await choose_sandbox("auto")
    assert choice.sandbox is None
    assert choice.problem == "the program bwrap is not installed (package bubblewrap)"


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
    choice = await choose_sandbox("process")
    assert choice.sandbox is not None
    assert not choice.sandbox.confines
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
