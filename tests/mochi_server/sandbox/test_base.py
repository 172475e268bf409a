from __future__ import annotations

from pathlib import Path, PurePosixPath

from mochi_server.sandbox import SandboxFolder, SandboxLimits, SandboxSpec


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
