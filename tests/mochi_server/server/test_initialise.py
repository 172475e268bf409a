from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from mochi_server.__main__ import main
from mochi_server.config import load_settings
from mochi_server.server.initialise import CannotInitialise, initialise
from mochi_server.server.startup import CannotStart, check_start, metrics_folder_problem
from tests.support.server import ROOT, environment, run_command
from tests.support.unprivileged import run_unprivileged

EXAMPLES = ROOT / "examples" / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_example_is_written_into_a_folder_that_is_made(tmp_path):
    outcome = initialise(tmp_path / "new" / "data")
    assert contents(tmp_path / "new" / "data") == contents(EXAMPLES)
    assert sorted(outcome.written) == sorted(contents(EXAMPLES))
    assert outcome.kept == []


def test_what_is_there_is_kept_and_what_is_missing_is_added(tmp_path):
    initialise(tmp_path)
    own = tmp_path / "tools" / "units.py"
    own.write_text("mine")
    (tmp_path / "tools" / "clock.py").unlink()
    outcome = initialise(tmp_path)
    assert outcome.written == ["tools/clock.py"]
    assert sorted(outcome.kept) == sorted(contents(EXAMPLES).keys() - {"tools/clock.py"})
    assert own.read_text() == "mine"


def test_a_link_to_nowhere_is_left_alone_and_nothing_is_written_behind_it(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "clock.py").symlink_to(tmp_path / "elsewhere.py")
    assert "tools/clock.py" in initialise(tmp_path).kept
    assert not (tmp_path / "elsewhere.py").exists()


def test_no_compiled_file_and_no_remains_are_left_in_the_folder(tmp_path):
    initialise(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*")}.isdisjoint({".pyc", ".tmp"})


def test_a_package_of_tools_is_not_there_before_its_modules(tmp_path):
    written = initialise(tmp_path).written
    last_module = max(i for i, path in enumerate(written) if not path.endswith("__init__.py"))
    assert last_module < min(i for i, path in enumerate(written) if path.endswith("__init__.py"))


@pytest.mark.parametrize("blocked", ["", "tools", "tools/files"])
def test_a_file_where_a_folder_must_be_is_named(tmp_path, blocked):
    folder = tmp_path / "data"
    place = folder / blocked
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file")
    with pytest.raises(CannotInitialise, match=f"^{place} is not a folder.$"):
        initialise(folder)
    assert place.read_text() == "a file"


def test_a_link_to_nowhere_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "tools").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CannotInitialise, match="tools is not a folder"):
        initialise(tmp_path)


async def initialise_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    with pytest.raises(CannotInitialise, match="cannot be written: Permission denied"):
        initialise(folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    run_unprivileged(initialise_a_folder_that_cannot_be_written, tmp_path)


def test_the_command_tells_what_it_wrote_and_what_to_do_next(tmp_path, capsys):
    assert main(["init", str(tmp_path / "my data")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"wrote {tmp_path}/my data/tools/__init__.py" in lines
    assert any(line.endswith(f"mochi-server --data-dir '{tmp_path}/my data'") for line in lines)


def test_a_second_command_only_tells_what_it_kept(tmp_path, capsys):
    initialise(tmp_path)
    assert main(["init", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(contents(EXAMPLES))
    assert f"kept {tmp_path}/tools/__init__.py, which was there already" in lines


def test_a_file_for_a_folder_is_one_line_and_code_1(tmp_path, capsys):
    (tmp_path / "data").write_text("a file")
    assert main(["init", str(tmp_path / "data")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"mochi-server: {tmp_path}/data is not a folder.\n"


def test_without_a_folder_it_is_one_line_and_code_2(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOCHI_DATA_DIR", raising=False)
    assert main(["init"]) == 2
    assert "name the folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


async def test_the_folder_may_be_named_as_for_the_server(tmp_path):
    ended = await run_command("init", cwd=tmp_path, env=environment(data_dir="below"))
    assert ended.code == 0, ended
    assert contents(tmp_path / "below") == contents(EXAMPLES)


@pytest.mark.slow
def test_a_wheel_has_the_examples_and_finds_them(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    done = subprocess.run(
        [sys.executable, "-m", "mochi_server", "init", "data"],
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "data") == contents(EXAMPLES)
    assert contents(installed / "mochi_server" / "examples") == contents(EXAMPLES)


def test_an_editable_installation_copies_nothing(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        (pointer,) = names
        assert archive.read(pointer).decode().strip() == str(ROOT)


# What is checked before the server serves


@pytest.mark.parametrize(
    ("setting", "module", "problem"),
    [
        ("strip_images", "PIL", r"pillow is missing: .*install .*\[images\]"),
        ("metrics", "prometheus_client", r"prometheus-client is missing: .*install .*\[metrics\]"),
    ],
)
def test_a_setting_whose_package_is_missing_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, module: str, problem: str
) -> None:
    settings = load_settings(data_dir=tmp_path, **{setting: True})
    check_start(settings)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CannotStart, match=problem):
        check_start(settings)
    check_start(load_settings(data_dir=tmp_path))


def test_metrics_of_several_processes_need_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path, metrics=True)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    assert metrics_folder_problem(settings, 1) is None
    assert "Set PROMETHEUS_MULTIPROC_DIR" in (metrics_folder_problem(settings, 2) or "")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    assert metrics_folder_problem(settings, 2) is None
