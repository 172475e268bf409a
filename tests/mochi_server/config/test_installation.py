"""The commands that hints name, run where they are printed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.server import ROOT, environment

SAY = (
    "from mochi_server.config.installation import *;"
    "print(own_command()); print(install_command('local'))"
)
PACKAGES = (
    *("mochi_server", "mochi_project", "chat"),
    *("sessions_app", "tools_app", "agents_app", "prompts_app"),
)
PULL = "from mochi_server.__main__ import main; sys.exit(main(['pull']))"


def site_packages(folder: Path, *without: str) -> Path:
    """Links to every installed package, and ours."""
    folder.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in without and not entry.name.startswith("mochi_server-"):
            (folder / entry.name).symlink_to(entry)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def installed_from(packages: Path, source: dict) -> None:
    """Note among the packages where an installer had ours from."""
    metadata = packages / "mochi_server-0.1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mochi-server\n")
    (metadata / "direct_url.json").write_text(json.dumps(source))


def said(folder: Path, packages: Path | None = None, **variables: str) -> list[str]:
    """The two commands in this folder: of this installation, or of one with these packages."""
    isolated = ["-S"] if packages is not None else []
    path = str(packages if packages is not None else ROOT)
    done = subprocess.run(
        [sys.executable, *isolated, "-c", f"import sys; sys.path.insert(0, {path!r}); {SAY}"],
        cwd=folder,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_command_of_this_installation_starts_it_here_and_elsewhere(tmp_path):
    for folder in (ROOT, tmp_path):
        own, _ = said(folder)
        done = subprocess.run(
            [*shlex.split(own), "--version"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert done.stdout.startswith("mochi-server ")


def test_a_command_that_path_leads_to_is_named_alone(tmp_path):
    scripts = Path(sys.executable).parent
    if not (scripts / "mochi-server").exists():
        pytest.skip("the program is not installed beside this interpreter")
    assert said(tmp_path, PATH=f"{scripts}:/usr/bin:/bin")[0] == "mochi-server"
    assert said(tmp_path, PATH="/usr/bin:/bin")[0] == str(scripts / "mochi-server")


def test_an_optional_part_comes_from_where_the_installation_came_from(tmp_path):
    wheel = tmp_path / "wheels" / "mochi_server-0.1.0-py3-none-any.whl"
    commit = "0123abc"
    packages = site_packages(tmp_path / "packages")
    for source, wanted in [
        ({"url": ROOT.as_uri(), "dir_info": {}}, shlex.quote(f"{ROOT}[local]")),
        ({"url": tmp_path.as_uri(), "dir_info": {}}, "'.[local]'"),
        ({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}, "-e '.[local]'"),
        (
            {"url": wheel.as_uri(), "archive_info": {}},
            "'./wheels/mochi_server-0.1.0-py3-none-any.whl[local]'",
        ),
        (
            {
                "url": "https://git.example/mochi.git",
                "vcs_info": {"vcs": "git", "commit_id": commit},
            },
            "'mochi-server[local] @ git+https://git.example/mochi.git'",
        ),
        ({}, "'mochi-server[local]'"),
    ]:
        installed_from(packages, source)
        _, install = said(tmp_path, packages)
        assert install.partition(" install ")[2].endswith(wanted), install


def test_pull_looks_for_the_engine_before_it_fetches_anything(tmp_path):
    packages = site_packages(tmp_path / "packages", "xllamacpp")
    installed_from(packages, {})
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(packages)!r}); {PULL}"],
        cwd=tmp_path,
        env={**environment(models_dir=tmp_path / "models"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert "package xllamacpp is missing (run: " in done.stderr
    assert "'mochi-server[local]')" in done.stderr
    assert not (tmp_path / "models").exists()
