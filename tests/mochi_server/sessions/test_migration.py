"""Files of old versions, brought into the present shape."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import JSONFileStorage, SessionManager
from mochi_server.sessions.migration import MigrationOutcome, migrate_files

OLD = sorted(Path("tests/data/sessions").rglob("*.json"))


def version_of(path):
    return json.loads(path.read_bytes())["metadata"].get("format_version", "1.0")


@pytest.fixture
def folder(tmp_path):
    """Every real file there is, with a session of today and a torn one."""
    for path in OLD:
        shutil.copy2(path, tmp_path / path.name)
    (tmp_path / "torn.json").write_text("{")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


async def test_a_look_names_the_old_ones_and_changes_nothing(folder):
    before, told = contents(folder), []
    found = await migrate_files(JSONFileStorage(folder), advance=lambda *each: told.append(each))
    assert contents(folder) == before
    old = {path.stem: version_of(path) for path in OLD if version_of(path) < "1.3"}
    assert len(old) >= 10
    assert {"1.0", "1.1", "1.2"} == {*old.values()}
    outcomes = {each.session_id: (each.version, each.outcome) for each in found}
    assert outcomes.pop("torn") == (None, MigrationOutcome.FAILED)
    assert outcomes == {name: (version, MigrationOutcome.OLD) for name, version in old.items()}
    assert told[-1] == (len(before), len(before))


async def test_migrated_files_say_the_same_as_before(folder):
    manager = SessionManager(sessions_dir=folder)
    before = contents(folder)
    listed = await manager.list()
    messages = {path.stem: (await manager.get(path.stem)).messages for path in OLD}
    found = await migrate_files(JSONFileStorage(folder), write=True)
    migrated = [each for each in found if each.outcome is MigrationOutcome.MIGRATED]
    assert len(migrated) == len(found) - 1
    again = SessionManager(sessions_dir=folder)
    assert await again.list() == listed
    for path in OLD:
        assert (await again.get(path.stem)).messages == messages[path.stem]
    for each in migrated:
        name = f"{each.session_id}.json"
        assert (folder / each.backup).read_bytes() == before[name]
        assert each.backup == f"{name}.{each.version}.bak"
        assert json.loads((folder / name).read_bytes())["metadata"]["format_version"] == "1.3"
    untouched = before.keys() - {f"{each.session_id}.json" for each in migrated}
    assert {name: contents(folder)[name] for name in untouched} == {
        name: before[name] for name in untouched
    }
    rest = await migrate_files(JSONFileStorage(folder), write=True)
    assert [each.session_id for each in rest] == ["torn"]


async def test_the_backup_keeps_mode_and_time(tmp_path):
    source = next(path for path in OLD if version_of(path) == "1.1")
    path = Path(shutil.copy(source, tmp_path))
    path.chmod(0o600)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    backup = tmp_path / done.backup
    assert (backup.stat().st_mode & 0o777, backup.stat().st_mtime) == (0o600, 1_600_000_000)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_an_older_backup_is_never_overwritten(tmp_path):
    source = next(path for path in OLD if version_of(path) == "1.1")
    shutil.copy(source, tmp_path)
    first = tmp_path / f"{source.name}.1.1.bak"
    first.write_text("precious")
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    assert first.read_text() == "precious"
    assert done.backup == f"{source.name}.1.1.2.bak"
    assert (tmp_path / done.backup).read_bytes() == source.read_bytes()


async def test_a_session_in_use_is_skipped_and_migrated_later(tmp_path):
    source = next(path for path in OLD if version_of(path) == "1.1")
    shutil.copy(source, tmp_path)
    async with SessionManager(sessions_dir=tmp_path).claim(source.stem):
        [skipped] = await migrate_files(JSONFileStorage(tmp_path), write=True)
        assert (skipped.outcome, skipped.backup) == (MigrationOutcome.BUSY, None)
        assert contents(tmp_path) == {source.name: source.read_bytes()}
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    assert done.outcome is MigrationOutcome.MIGRATED


async def test_a_newer_version_is_left_alone(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    path = tmp_path / "one.json"
    path.write_bytes(path.read_bytes().replace(b'"1.3"', b'"1.4"'))
    assert await migrate_files(JSONFileStorage(tmp_path), write=True) == []
    assert version_of(path) == "1.4"


async def test_a_migrated_session_goes_on(tmp_path):
    source = next(path for path in OLD if version_of(path) == "1.1")
    shutil.copy(source, tmp_path)
    await migrate_files(JSONFileStorage(tmp_path), write=True)
    manager = SessionManager(sessions_dir=tmp_path)
    async with manager.edit(source.stem) as session:
        count = len(session.messages)
        session.append(UserMessage(content="More"))
    assert len((await manager.get(source.stem)).messages) == count + 1
