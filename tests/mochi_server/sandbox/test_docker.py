"""The arguments that Docker gets; there is no Docker engine where these tests run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mochi_server.sandbox import SandboxFolder, SandboxLimits, SandboxSpec
from mochi_server.sandbox.docker import DockerSandbox

SECONDS = 60.0
STAND_IN = Path(__file__).parents[2] / "support" / "docker_stand_in.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "session"
    made.mkdir()
    return made


def stand_in(tmp_path: Path, name: str = "docker") -> str:
    program = tmp_path / name
    program.write_text(f"#!{sys.executable}\n{STAND_IN.read_text('utf-8')}")
    program.chmod(0o755)
    return str(program)


def run(sandbox: DockerSandbox, argv: list[str], spec: SandboxSpec) -> None:
    made = sandbox.command(argv, spec)
    subprocess.run(made.argv, env=made.env, check=True, stdin=subprocess.DEVNULL, timeout=SECONDS)


def record(tmp_path: Path) -> dict:
    noted: dict = json.loads((tmp_path / "run.json").read_text())
    return noted


def removed(tmp_path: Path) -> str:
    ends = time.monotonic() + SECONDS
    file = tmp_path / "removed"
    while not (file.exists() and (text := file.read_text())):
        assert time.monotonic() < ends, "the container was not removed"
        os.sched_yield()
    return text


def test_a_container_has_no_network_half_a_processor_and_512_mb(
    tmp_path: Path, folder: Path
) -> None:
    spec = SandboxSpec.of_workspace(folder)
    run(DockerSandbox(program=stand_in(tmp_path)), ["true"], spec)
    noted = record(tmp_path)
    options = [tuple(each) for each in noted["options"]]
    assert {
        ("--rm", None),
        ("--network", "none"),
        ("--memory", "512000000b"),
        ("--memory-swap", "512000000b"),
        ("--cpus", "0.5"),
        ("--pids-limit", "64"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--read-only", None),
        ("--pull", "never"),
        ("--user", f"{os.getuid()}:{os.getgid()}"),
        ("--tmpfs", "/tmp:rw,nosuid,nodev,size=64000000,mode=1777"),
        ("--mount", f"type=bind,source={folder},target=/workspace"),
        ("--workdir", "/workspace"),
    } <= set(options)
    assert (noted["image"], noted["command"]) == ("mochi-server-sandbox", ["true"])
    assert noted["variables"]["HOME"] == "/workspace"


def test_a_container_is_removed_at_the_end(tmp_path: Path, folder: Path) -> None:
    run(DockerSandbox(program=stand_in(tmp_path)), ["true"], SandboxSpec.of_workspace(folder))
    name = dict(map(tuple, record(tmp_path)["options"]))["--name"]
    assert name.startswith("mochi-")
    assert removed(tmp_path) == f"{name}\n"


def test_a_container_is_removed_when_all_processes_are_killed(tmp_path: Path, folder: Path) -> None:
    made = DockerSandbox(program=stand_in(tmp_path)).command(
        ["sh", "-c", "echo started; sleep 300"], SandboxSpec.of_workspace(folder)
    )
    with subprocess.Popen(
        made.argv, env=made.env, stdout=subprocess.PIPE, start_new_session=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"started\n"
        os.killpg(started.pid, 9)
    assert removed(tmp_path).startswith("mochi-")


def test_what_is_asked_for_is_passed_on(tmp_path: Path, folder: Path) -> None:
    limits = SandboxLimits(memory_mb=100, processes=5, file_mb=1, open_files=9, cpu_seconds=7)
    spec = SandboxSpec(
        folders=[SandboxFolder(path=folder)], network=True, environment={"A": "b"}, limits=limits
    )
    run(DockerSandbox(program=stand_in(tmp_path), image="mine"), [sys.executable, "-V"], spec)
    noted = record(tmp_path)
    options = [tuple(each) for each in noted["options"]]
    assert "--network" not in dict(options)
    assert {value for name, value in options if name == "--ulimit"} == {
        "nofile=9:9",
        "fsize=1000000:1000000",
        "core=0:0",
        "cpu=7:7",
    }
    assert ("--mount", f"type=bind,source={folder},target={folder},readonly") in options
    assert (noted["image"], noted["command"]) == ("mine", ["python3", "-V"])
    assert noted["variables"]["A"] == "b"


def test_podman_keeps_the_user(tmp_path: Path, folder: Path) -> None:
    run(DockerSandbox(program=stand_in(tmp_path, "podman")), ["true"], SandboxSpec())
    options = dict(map(tuple, record(tmp_path)["options"]))
    assert options.get("--userns") == ("keep-id" if os.getuid() else None)


async def test_a_missing_image_is_a_problem(tmp_path: Path) -> None:
    sandbox = DockerSandbox(program=stand_in(tmp_path), image="none")
    problem = await sandbox.problem()
    assert problem == ("docker has no image 'none': docker: Error: No such image: none")
    assert await DockerSandbox(program="/none/docker").problem() == (
        "neither docker nor podman is installed"
    )


@pytest.mark.parametrize(
    "spec", [SandboxSpec(keep_fds=[5]), SandboxSpec(environment={"A": "1\n2"})]
)
def test_what_a_container_cannot_be_given_is_refused(tmp_path: Path, spec: SandboxSpec) -> None:
    with pytest.raises(ValueError, match="a container cannot be given"):
        DockerSandbox(program=stand_in(tmp_path)).command(["true"], spec)
