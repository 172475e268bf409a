"""The unit of docs/how-to/run-as-a-service.md is one that systemd takes, and fits the settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mochi_server.config import MochiServerSettings, variable_of
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "run-as-a-service.md"
ANALYZE = shutil.which("systemd-analyze")
EXECUTABLE = "/opt/mochi-server/bin/mochi-server"

CLOSING_SECONDS = 15
"""For saves, background work, tools and connections, after the turns."""


def unit() -> str:
    return next(block.text for block in blocks(PAGE) if block.language == "ini")


def lines_of(name: str) -> list[str]:
    return re.findall(rf"(?m)^{name}=(.*)$", unit())


def test_a_stop_has_time_for_turns_and_all_that_comes_after_them() -> None:
    shutdown = MochiServerSettings.model_fields["shutdown_seconds"].default
    assert int(lines_of("TimeoutStopSec")[0]) >= shutdown + CLOSING_SECONDS


def test_the_variables_of_the_unit_are_settings() -> None:
    known = {variable_of(field) for field in MochiServerSettings.model_fields}
    named = {line.partition("=")[0].removesuffix("_FILE") for line in lines_of("Environment")}
    assert named <= known


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    assert ANALYZE is not None
    path = tmp_path / "mochi-server.service"
    path.write_text(unit().replace(EXECUTABLE, sys.executable).replace("User=mochi", "User=root"))
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, ours) == (0, [])
