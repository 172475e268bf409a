"""Confirmations that processes share: kills, a disk that refuses, what is lost or broken."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.confirmations import state
from mochi_server.chat.confirmations.confirmation import ConfirmationRecord, dump
from mochi_server.core.clock import timestamp
from mochi_server.errors import ConfirmationNotFound, ConfirmationUnavailable
from mochi_server.state import Signals, SQLiteState
from tests.support.confirmations import NO, START, YES, make_confirmation, store_in
from tests.support.disk import full_disk

DECIDER = """
import asyncio, sys
from pathlib import Path
from mochi_server.chat.confirmations.confirmation import ConfirmationDecision
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.errors import ConfirmationNotFound
from mochi_server.state import SQLiteState

async def main():
    store = StateConfirmationStore(SQLiteState(Path(sys.argv[1])))
    decision = ConfirmationDecision(approved=True, reason=sys.argv[2])
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            await store.decide(line.strip(), decision)
        except ConfirmationNotFound:
            print("lost", flush=True)
        else:
            print("won", flush=True)

asyncio.run(main())
"""


@contextmanager
def decider(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that decides what it is told, and reports whether its decision counts."""
    process = subprocess.Popen(
        [sys.executable, "-c", DECIDER, str(folder), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()


def tell(process: subprocess.Popen[str], line: str) -> None:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "confirmations"


@pytest.fixture
def store(folder):
    return store_in(folder)


async def test_a_process_that_is_killed_leaves_each_pending_or_decided(folder, store):
    asked = [make_confirmation() for _ in range(100)]
    for each in asked:
        await store.put(each)
    ids = [each.confirmation_id for each in asked]
    decided: set[str] = set()
    for start in range(0, 100, 10):
        with decider(folder, "killed") as process:
            for each in ids[start : start + 10]:
                tell(process, each)
            await anyio.sleep(random.uniform(0, 0.04))  # the random instant
            process.kill()
            reported = process.stdout.read().split()
        decided.update(ids[start : start + len(reported)])
    pending = [each.confirmation_id for each in await store_in(folder).pending()]
    assert decided.isdisjoint(pending)
    for each in ids:
        decision = await store.decision(each)
        assert (decision is None) == (each in pending)
        assert decision is None or decision.reason == "killed"
    for each in pending:
        await store.decide(each, NO)
    assert await store.pending() == []


async def test_what_is_stored_outlives_the_store(folder, store):
    await store.put(asked := make_confirmation())
    await store.put(decided := make_confirmation())
    await store.decide(decided.confirmation_id, NO)
    again = store_in(folder)
    assert await again.pending() == [asked]
    decision = await again.decision(decided.confirmation_id)
    assert decision.reason == "not today"
    assert folder.stat().st_mode & 0o077 == 0
    assert [path for path in folder.iterdir() if path.stat().st_mode & 0o077] == []


async def test_what_cannot_be_read_hides_no_other_and_a_newer_version_may_have_more(
    store, folder, caplog
):
    """A decision that cannot be read is a denial."""
    newer, other = make_confirmation(), make_confirmation(minutes=1)
    await store.put(newer)
    await store.put(other)
    await store.decide(other.confirmation_id, YES)
    whole = dump(newer.fields())
    values = {
        "conf_1": b"",
        "conf_2": b"{}",
        "conf_3": b"[" * 100_000,
        "conf_4": whole.replace(b'"one"', b"1"),
        "conf_5": whole.replace(b"null", b'"soon"', 1),
        newer.confirmation_id: dump({**newer.fields(), "new": 1}),
        other.confirmation_id: dump(other.fields()) + b"\n{}",
    }

    def change(statements):
        for name, value in values.items():
            statements.remove_row(state.ROWS, name)
            statements.add_row(state.ROWS, name, value)

    await SQLiteState(folder).write(change)
    for _ in range(2):
        assert await store.pending() == [newer]
        with pytest.raises(ConfirmationNotFound):
            await store.decide("conf_2", YES)
    assert caplog.text.count("conf_1 cannot be read") == 1
    assert not (await store.decision(other.confirmation_id)).approved


@pytest.mark.parametrize("line", [b"{}", b"[" * 100_000, b"\xff"])
async def test_what_cannot_be_read_of_the_history_is_passed_over(store, folder, caplog, line):
    asked = [make_confirmation(minutes=number) for number in range(3)]
    for each in asked[:2]:
        await store.put(each)
        await store.decide(each.confirmation_id, YES)
        await store.consume(each.confirmation_id)
    await store.put(asked[2])

    def change(statements):
        statements.append_line(state.HISTORY, "conf_1", line, keep_bytes=1_000_000)
        statements.append_line(state.HISTORY, asked[2].confirmation_id, line, keep_bytes=1_000_000)
        statements.remove_row(state.ROWS, asked[2].confirmation_id)

    async with store.watch() as changes:
        await SQLiteState(folder).write(change)
        with anyio.fail_after(30):
            decided = await anext(changes)
    assert decided.decision.code == "CONFIRMATION_UNAVAILABLE"
    with pytest.raises(ConfirmationNotFound):
        await store.decide("conf_1", YES)
    newest_first = [each.confirmation_id for each in reversed(asked[:2])]
    assert [
        each.confirmation.confirmation_id for each in await store.history(limit=2)
    ] == newest_first
    assert [
        each.confirmation.confirmation_id for each in await store.history(limit=1)
    ] == newest_first[:1]
    assert "entry of the history of confirmations cannot be read" in caplog.text


async def test_a_decision_whose_signal_was_lost_is_followed(folder):
    asking, deciding = (
        state.StateConfirmationStore(SQLiteState(folder), signals=Signals()) for _ in range(2)
    )
    await asking.put(asked := make_confirmation())
    async with asking.watch() as changes:
        await deciding.decide(asked.confirmation_id, YES)
        with anyio.fail_after(30):
            change = await anext(changes)
    assert (change.kind, change.confirmation) == ("decided", asked)
    await asking.aclose()
    await deciding.aclose()


async def test_a_folder_that_is_deleted_ends_the_waiting(folder, store):
    await store.put(asked := make_confirmation())
    async with store.watch() as changes:
        await asyncio.to_thread(shutil.rmtree, folder)
        with anyio.fail_after(30):
            change = await anext(changes)
    assert not change.decision.approved
    assert change.decision.code == "CONFIRMATION_UNAVAILABLE"
    assert await store.pending() == []
    with pytest.raises(ConfirmationNotFound):
        await store.decide(asked.confirmation_id, YES)
    await store.put(asked)
    assert await store.pending() == [asked]
    await store.aclose()


async def test_a_disk_that_refuses_makes_confirmations_unavailable(folder, store):
    await store.put(asked := make_confirmation())
    await store.put(decided := make_confirmation())
    await store.decide(decided.confirmation_id, YES)
    with full_disk():
        for step in (
            store.put(make_confirmation()),
            store.decide(asked.confirmation_id, YES),
            store.consume(decided.confirmation_id),
            store.record(asked, YES),
        ):
            with pytest.raises(ConfirmationUnavailable):
                await step
    assert await store.pending() == [asked]
    [_, stored] = sorted(await store.of_run("run_1"), key=lambda each: each.decision is not None)
    assert stored.confirmation == decided
    await store.decide(asked.confirmation_id, YES)


async def test_a_file_in_the_place_of_the_folder_makes_confirmations_unavailable(folder, store):
    folder.parent.mkdir()
    folder.touch()
    asked = make_confirmation()
    for step in (
        store.put(asked),
        store.pending(),
        store.decide(asked.confirmation_id, YES),
        store.history(),
        store.wait(asked.confirmation_id),
    ):
        with pytest.raises(ConfirmationUnavailable):
            await step


async def test_a_watcher_goes_on_when_the_disk_is_back(folder, store, caplog):
    await store.put(asked := make_confirmation())
    async with store.watch() as changes:
        folder.rename(aside := folder.with_name("aside"))
        folder.touch()
        with anyio.fail_after(30):
            while "Trying again" not in caplog.text:
                await asyncio.wait(asyncio.all_tasks(), timeout=0.01)
        folder.unlink()
        aside.rename(folder)
        await store_in(folder).decide(asked.confirmation_id, YES)
        with anyio.fail_after(30):
            assert (await anext(changes)).kind == "decided"
    assert caplog.text.count("Trying again") == 1
    await store.aclose()


async def test_the_history_is_bounded(folder, store, monkeypatch):
    monkeypatch.setattr(state, "MAX_HISTORY_BYTES", 5000)
    asked = [make_confirmation() for _ in range(40)]
    for each in asked:
        await store.record(each, YES)
    records = await store.history()
    assert 5 < len(records) < 40
    assert [each.confirmation for each in records] == asked[::-1][: len(records)]


async def test_several_write_the_history_at_once(folder, monkeypatch):
    monkeypatch.setattr(state, "MAX_HISTORY_BYTES", 100_000)
    stores = [store_in(folder) for _ in range(4)]
    asked = [make_confirmation() for _ in range(200)]
    await asyncio.gather(
        *(stores[number % 4].record(each, YES) for number, each in enumerate(asked))
    )
    records = await stores[0].history(limit=1000)
    ids = {each.confirmation_id for each in asked}
    assert {each.confirmation.confirmation_id for each in records} == ids


# What an earlier version has kept in files


PENDING, DECIDED, UNREADABLE = (make_confirmation(minutes=number) for number in range(3))
DECISION = replace(NO, decided_at=timestamp(START))
RECORDS = [
    ConfirmationRecord(
        confirmation=make_confirmation(minutes=number),
        decision=DECISION,
        ran={"number": number},
        recorded_at=timestamp(START),
    )
    for number in range(4)
]


@pytest.fixture
def former(tmp_path):
    """The state of the former version, also with what it could not read."""
    folder = tmp_path / "confirmations"
    folder.mkdir()
    for each in (PENDING, DECIDED, UNREADABLE):
        (folder / f"{each.confirmation_id}.json").write_bytes(dump({**each.fields(), "newer": 1}))
    (folder / f"{DECIDED.confirmation_id}.decision.json").write_bytes(dump(DECISION.payload()))
    (folder / f"{UNREADABLE.confirmation_id}.decision.json").mkdir()
    (folder / "conf_1.json").write_text("{")
    (folder / "conf_2.json").write_bytes(dump(PENDING.fields()))
    (folder / "conf_3.json").symlink_to(f"{PENDING.confirmation_id}.json")
    (folder / "conf_4.decision.json").touch()
    (folder / ".conf_5.json.0123456789abcdef.tmp").touch()
    lines = [json.dumps(each.fields(), separators=(",", ":")) for each in RECORDS]
    (folder / "history.1.jsonl").write_text("".join(f"{line}\n" for line in lines[:2]))
    (folder / "history.jsonl").write_text(f'{lines[2]}\n{{"confirma\n{lines[3]}\n{lines[3]}\n')
    return tmp_path


async def test_all_that_was_kept_in_files_is_taken_over_once(former, caplog):
    stores = [store_in(former) for _ in range(3)]
    pending = await asyncio.gather(*(store.pending() for store in stores))
    assert pending == [[PENDING]] * 3
    store = stores[0]
    assert [each.confirmation for each in await store.of_run("run_1")] == [
        PENDING,
        DECIDED,
        UNREADABLE,
    ]
    assert await store.decision(DECIDED.confirmation_id) == DECISION
    assert not (await store.decision(UNREADABLE.confirmation_id)).approved
    assert await store.history() == RECORDS[::-1]
    assert not (former / "confirmations").exists()
    assert caplog.text.count("cannot be read") == 3
    await store.decide(PENDING.confirmation_id, YES)
    for each in (PENDING, DECIDED):
        await store.consume(each.confirmation_id)
    with pytest.raises(ConfirmationNotFound):
        await store_in(former).decide(DECIDED.confirmation_id, YES)


async def test_what_is_left_in_files_after_it_was_taken_over_comes_not_again(former, monkeypatch):
    """As where the process was killed before it had removed them."""
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        store = store_in(former)
        await store.end_run("run_1")
    assert (former / "confirmations").exists()
    assert await store_in(former).pending() == []
    assert not (former / "confirmations").exists()


async def test_a_history_that_cannot_be_read_costs_nothing_else(former, caplog):
    (former / "confirmations" / "history.1.jsonl").unlink()
    (former / "confirmations" / "history.1.jsonl").symlink_to("history.jsonl")
    store = store_in(former)
    assert await store.pending() == [PENDING]
    assert await store.history() == RECORDS[:1:-1]
    assert "history.1.jsonl cannot be read" in caplog.text
