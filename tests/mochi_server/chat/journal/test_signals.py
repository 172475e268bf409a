"""What processes tell each other about runs in the files of a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mochi_server.chat.journal import signals as signals_module
from mochi_server.chat.journal.signals import FileRunSignals, RunSignals
from mochi_server.errors import StorageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_folder_that_has_not_changed_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = FileRunSignals(tmp_path)
    now = 1000.0
    monkeypatch.setattr(signals_module.time, "monotonic", lambda: now)
    assert list(await signals.stop_requests()) == []
    now += 10
    assert list(await signals.stop_requests()) == []
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("it was listed"))
    assert list(await signals.stop_requests()) == []


async def test_a_request_of_the_same_instant_is_seen_by_who_stood_still_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not change the time of the folder, which is coarse."""
    signals, other = FileRunSignals(tmp_path), FileRunSignals(tmp_path)
    assert list(await signals.stop_requests()) == []
    instant = tmp_path.stat().st_mtime_ns
    await other.request_stop("run_1")
    os.utime(tmp_path, ns=(instant, instant))
    later = signals_module.time.monotonic() + 10
    monkeypatch.setattr(signals_module.time, "monotonic", lambda: later)
    assert list(await signals.stop_requests()) == ["run_1"]


async def test_what_a_crash_has_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    signals = FileRunSignals(tmp_path)
    for run_id in ("run_1", "run_2"):
        await signals.request_stop(run_id)
        await (await signals.add_reader(run_id))()
    leave = await signals.add_reader("run_2")
    os.utime(tmp_path / "run_1.stop", (0, 0))
    await signals.prune()
    assert names(tmp_path) == ["run_2.readers", "run_2.stop"]
    await leave()


@pytest.mark.parametrize("run_id", ["../other", "a\0b", "a" * 300, "", "."])
async def test_what_can_be_no_run_is_not_asked_to_stop(tmp_path: Path, run_id: str) -> None:
    (tmp_path / "other.stop").touch()
    folder = tmp_path / "runs"
    folder.mkdir()
    signals = FileRunSignals(folder)
    await signals.request_stop(run_id)
    await signals.withdraw_stop(run_id)
    assert names(folder) == []
    assert names(tmp_path) == ["other.stop", "runs"]


async def test_a_folder_that_cannot_be_used_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    signals = FileRunSignals(file)
    assert list(await signals.stop_requests()) == []
    assert not await signals.has_readers("run_1")
    await (await signals.add_reader("run_1"))()
    with pytest.raises(StorageError, match="file"):
        await signals.request_stop("run_1")


async def test_a_process_alone_has_no_signals() -> None:
    signals = RunSignals()
    await signals.request_stop("run_1")
    assert list(await signals.stop_requests()) == []
    await (await signals.add_reader("run_1"))()
    assert not await signals.has_readers("run_1")
