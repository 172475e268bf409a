from __future__ import annotations

import json
import os
import stat

import pytest

from mochi_server.core import audit
from mochi_server.core.audit import AuditLog
from mochi_server.core.caller import Caller, serving
from mochi_server.errors import InvalidRequest
from tests.support.disk import little_room


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl", tmp_path / "state" / "audit.lock")


async def actions(log: AuditLog, limit: int = 1000) -> list[str]:
    """All entries by pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = await log.page(limit, cursor)
        found += [str(entry["action"]) for entry in page.entries]
        assert len(page.entries) <= limit
        if (cursor := page.next_cursor) is None:
            return found


async def test_an_entry_says_who_has_done_what(log):
    with serving(Caller(name="alice", address="127.0.0.1")):
        await log.record("delete file", "refused", session_id="s1", file="a" * 500, left=None)
    (entry,) = (await log.page(10)).entries
    assert entry == {
        "time": entry["time"],
        "who": "alice",
        "address": "127.0.0.1",
        "request_id": None,
        "action": "delete file",
        "target": {"session_id": "s1", "file": "a" * 200},
        "outcome": "refused",
    }
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


async def test_what_a_proxy_says_is_an_address_fills_no_log(log):
    with serving(Caller(name="nobody", address="a" * 5_000)):
        await log.record("refuse token", "refused")
    (entry,) = (await log.page(10)).entries
    assert entry["address"] == "a" * 200


async def test_pages_go_back_through_all_files(log, monkeypatch):
    monkeypatch.setattr(audit, "MAX_BYTES", 1_000)
    for number in range(30):
        await log.record(f"act {number}")
    expected = [f"act {number}" for number in reversed(range(30))]
    found = await actions(log)
    assert found == expected[: len(found)]
    assert len(found) > 20
    for limit in (1, 7):
        assert await actions(log, limit) == found


async def test_old_files_are_forgotten(log, monkeypatch):
    monkeypatch.setattr(audit, "MAX_BYTES", 1)
    for number in range(20):
        await log.record(f"act {number}")
    assert await actions(log) == [f"act {number}" for number in range(19, 14, -1)]
    names = sorted(path.name for path in log.path.parent.glob("audit*"))
    assert names == [f"audit.jsonl.{number}" for number in range(1, 6)]


async def test_a_torn_line_hides_no_other(log):
    await log.record("first")
    with log.path.open("a") as file:
        file.write('{"time": "2026')
    await log.record("second")
    assert await actions(log, 1) == ["second", "first"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
async def test_what_cannot_be_written_stops_nothing_and_is_said_once(log, caplog, make):
    make(log.path)
    await log.record("first")
    await log.record("second")
    assert caplog.text.count("The audit log cannot be written") == 1


@pytest.mark.parametrize("room", [0, 50])
async def test_what_a_full_disk_has_no_room_for_is_written_when_it_has(log, caplog, room):
    """Also where half of the line went in."""
    await log.record("first")
    with little_room(room + log.path.stat().st_size):
        await log.record("second")
        await log.record("third")
        assert await actions(log) == ["first"]
    assert caplog.text.count("The audit log cannot be written") == 1
    await log.record("fourth")
    assert await actions(log) == ["fourth", "third", "second", "first"]
    assert len(log.path.read_text().splitlines()) == 4


async def test_a_link_is_not_followed(log, tmp_path):
    log.path.symlink_to(tmp_path / "elsewhere")
    await log.record("first")
    assert not (tmp_path / "elsewhere").exists()


async def test_an_odd_name_is_no_line_of_its_own(log):
    await log.record("delete file", file="a\n{}\udc80")
    lines = log.path.read_text().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["target"]["file"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "-", "1-x", "²-1", "1-" + "9" * 80])
async def test_what_is_no_cursor_is_refused(log, cursor):
    with pytest.raises(InvalidRequest):
        await log.page(10, cursor)
