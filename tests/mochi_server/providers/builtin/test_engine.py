"""What the built-in model says where it cannot run, asked of real interpreters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import mochi_server
from mochi_server.providers.builtin.engine import missing_requirement, own_folder, run_folder

ASK = "from mochi_server.providers.builtin.engine import missing_requirement as m; print(m())"


def answer_of(packages: Path, **variables: str) -> str:
    """What an interpreter with these packages says."""
    root = Path(mochi_server.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{root}", **variables}
    command = [sys.executable, "-S", "-c", ASK]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.strip()


def packages_without(folder: Path, *names: str) -> Path:
    """A folder with links to every installed package but these."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in names:
            (folder / entry.name).symlink_to(entry)
    return folder


def test_here_nothing_is_missing():
    assert missing_requirement() is None


@pytest.mark.parametrize("name", ["xllamacpp", "openai"])
def test_a_missing_package_is_named_with_what_to_run(tmp_path, name):
    packages = packages_without(tmp_path / "packages", name)
    said = answer_of(packages)
    assert re.fullmatch(rf"package {name} is missing \(run: .*install .*\[local\]'\)", said), said


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need no libgomp")
def test_a_missing_system_library_is_named_with_what_to_install(tmp_path):
    """The loader takes the first file of that name, and this one is none of its kind."""
    (tmp_path / "libgomp.so.1").write_text("not a library")
    packages = packages_without(tmp_path / "packages")
    assert answer_of(packages) == "None"
    said = answer_of(packages, LD_LIBRARY_PATH=str(tmp_path))
    assert said == "system library libgomp.so.1 is missing (install libgomp1, or gcc's libgomp)"


def test_the_first_folder_that_takes_files_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    models = tmp_path / "models"
    assert run_folder(models) == models / ".run"
    (models / ".run").rmdir()
    (models / ".run").touch()
    assert run_folder(models) == tmp_path / "cache" / "mochi-server" / "run"
    (tmp_path / "cache" / "mochi-server" / "run").rmdir()
    (tmp_path / "cache" / "mochi-server" / "run").touch()
    last = tmp_path / f"mochi-server-{os.getuid()}"
    assert run_folder(models) == last
    assert last.stat().st_mode & 0o777 == 0o700
    last.chmod(0o777)
    with pytest.raises(PermissionError, match="mochi-server"):
        run_folder(models)


def test_a_folder_that_others_prepared_is_not_ours(tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(other)
    assert own_folder(other)
    assert not own_folder(link)
    assert own_folder(tmp_path / "new")
    (tmp_path / "file").touch()
    assert not own_folder(tmp_path / "file")
    assert not own_folder(tmp_path / "file" / "below")
