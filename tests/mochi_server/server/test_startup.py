"""What is checked before the server serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mochi_server.config import load_settings
from mochi_server.server.startup import CannotStart, check_start, metrics_folder_problem


def test_images_cannot_lose_their_metadata_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path, strip_images=True)
    check_start(settings)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(CannotStart, match=r"pillow is missing: .*install .*\[images\]"):
        check_start(settings)


def test_there_are_no_metrics_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path, metrics=True)
    check_start(settings)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CannotStart, match=r"prometheus-client is missing: .*install .*\[metrics\]"):
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
