"""Confirmations in files: several processes, kills, a disk that refuses."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.confirmations import files
from mochi_server.chat.confirmations.files import FileConfirmationStore
from mochi_server.core.files import is_steady, replace_file
from mochi_server.errors import ConfirmationNotFound, ConfirmationUnavailable
from tests.support.confirmations import NO, YES, make_confirmation
from tests.support.disk import full_disk

DECIDER = """
import asyncio, sys
from pathlib import Path
from mochi_server.chat.confirmations.confirmation import ConfirmationDecision
from mochi_server.chat.confirmations.files import FileConfirmationStore
from mochi_server.errors import ConfirmationNotFound

async def main():
    store = FileConfirmationStore(Path(sys.argv[1]))
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
    return FileConfirmationStore(folder)


async def test_a_process_that_is_killed_leaves_each_pending_or_decided(folder, store):
    asked = [make_confirmation() for _ in range(400)]
    for each in asked:
        await store.put(each)
    ids = [each.confirmation_id for each in asked]
    decided: set[str] = set()
    for start in range(0, 400, 40):
        with decider(folder, "killed") as process:
            for each in ids[start : start + 40]:
                tell(process, each)
            await anyio.sleep(random.uniform(0, 0.15))  # the random instant
            process.kill()
            reported = process.stdout.read().split()
        decided.update(ids[start : start + len(reported)])
    pending = [each.confirmation_id for each in await FileConfirmationStore(folder).pending()]
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
    again = FileConfirmationStore(folder)
    assert await again.pending() == [asked]
    decision = await again.decision(decided.confirmation_id)
    assert decision.reason == "not today"
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / f"{asked.confirmation_id}.json").stat().st_mode & 0o077 == 0


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
        assert not await store.check()
        for step in (
            store.put(make_confirmation()),
            store.decide(asked.confirmation_id, YES),
            store.consume(decided.confirmation_id),
            store.record(asked, YES),
        ):
            with pytest.raises(ConfirmationUnavailable):
                await step
    assert await store.check()
    assert await store.pending() == [asked]
    [_, stored] = sorted(await store.of_run("run_1"), key=lambda each: each.decision is not None)
    assert stored.confirmation == decided
    await store.decide(asked.confirmation_id, YES)
    assert list(folder.glob(".*")) == []


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
    assert not await store.check()


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
        await FileConfirmationStore(folder).decide(asked.confirmation_id, YES)
        with anyio.fail_after(30):
            assert (await anext(changes)).kind == "decided"
    assert caplog.text.count("Trying again") == 1
    await store.aclose()


async def test_one_bad_file_hides_no_good_one(folder, store, caplog):
    await store.put(asked := make_confirmation())
    whole = (folder / f"{asked.confirmation_id}.json").read_text()
    for name, text in {
        "conf_1": "",
        "conf_2": "{}",
        "conf_3": "[" * 100_000,
        "conf_4": whole,  # another id
        "conf_5": whole.replace('"one"', "1"),
        "conf_8": whole.replace(asked.confirmation_id, "conf_8").replace("null", '"soon"', 1),
        "conf_9": whole.replace(asked.confirmation_id, "conf_9").replace('Z"', '"'),
    }.items():
        (folder / f"{name}.json").write_text(text)
    (folder / "conf_6.json").symlink_to(f"{asked.confirmation_id}.json")
    (folder / "conf_7.json").mkdir()
    (folder / "a b.json").touch()
    assert await store.pending() == [asked]
    assert await store.pending() == [asked]
    assert caplog.text.count("conf_1 cannot be read") == 1
    with pytest.raises(ConfirmationNotFound):
        await store.decide("conf_2", YES)


async def test_a_newer_version_may_have_stored_more(folder, store):
    await store.put(asked := make_confirmation())
    path = folder / f"{asked.confirmation_id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "new": 1}))
    assert await store.pending() == [asked]


async def test_a_decision_that_cannot_be_read_is_a_denial_once_nobody_writes_it(folder, store):
    await store.put(asked := make_confirmation())
    path = folder / f"{asked.confirmation_id}.decision.json"
    path.touch()
    assert await store.decision(asked.confirmation_id) is None
    assert await store.pending() == [asked]
    os.utime(path, (time.time() - 60,) * 2)
    decision = await store.decision(asked.confirmation_id)
    assert not decision.approved
    assert await store.pending() == []


async def test_a_decision_that_comes_after_the_consumption_does_not_count(folder, store):
    """Between two steps of a decision another process decides, and acts on it."""
    await store.put(asked := make_confirmation())
    other = FileConfirmationStore(folder)
    stored = await store._find(asked.confirmation_id)
    await other.decide(asked.confirmation_id, NO)
    await other.consume(asked.confirmation_id)
    assert not await store._settle(stored.confirmation, YES)
    assert list(folder.glob("*decision*")) == []


async def test_a_decision_counts_also_if_it_is_followed_before_its_decider_knows(
    folder, store, monkeypatch
):
    """Who waits may have acted and consumed it between two steps of who decides."""
    confirmation = make_confirmation()
    name = confirmation.confirmation_id
    await store.put(confirmation)
    write = files.replace_file

    def write_and_consume(path, *arguments, **options):
        write(path, *arguments, **options)
        if path.name.endswith(files.DECIDED_SUFFIX):
            asyncio.run(FileConfirmationStore(folder).consume(name, ran={"a": 1}))

    monkeypatch.setattr(files, "replace_file", write_and_consume)
    assert await store.decide(name, YES) == confirmation
    monkeypatch.undo()
    with pytest.raises(ConfirmationNotFound):
        await store.decide(name, NO)
    assert [record.ran for record in await store.history()] == [{"a": 1}]


@pytest.mark.parametrize("kind", ["link", "folder"])
async def test_a_decision_that_is_no_file_hides_no_other_and_is_a_denial(folder, store, kind):
    bad, other, late = (make_confirmation(minutes=minutes) for minutes in range(3))
    await store.put(bad)
    await store.put(other)
    path = folder / f"{bad.confirmation_id}{files.DECIDED_SUFFIX}"
    if kind == "link":
        path.symlink_to("/nonexistent")
    else:
        path.mkdir()
    assert await store.pending() == [bad, other]
    await store.put(late)
    assert await store.pending() == await FileConfirmationStore(folder).pending()
    await store.decide(other.confirmation_id, YES)
    os.utime(path, (time.time() - 600,) * 2, follow_symlinks=False)
    assert await store.pending() == [late]
    decision = await store.decision(bad.confirmation_id)
    assert not decision.approved


async def test_leftovers_of_killed_processes_are_removed(folder, store):
    await store.put(make_confirmation())
    leftovers = [folder / ".conf_1.json.0123456789abcdef.tmp", folder / "conf_1.decision.json"]
    for path in leftovers:
        path.touch()
    await store.pending()
    assert all(path.exists() for path in leftovers)  # somebody may be writing them
    for path in leftovers:
        os.utime(path, (time.time() - 600,) * 2)
    await store.pending()
    assert not any(path.exists() for path in leftovers)


async def test_what_is_being_written_outlives_a_clock_that_jumps_ahead(folder, store):
    await store.put(first := make_confirmation())

    def parts():
        yield b"half, "
        (temporary,) = (path for path in folder.iterdir() if path.suffix == ".tmp")
        os.utime(temporary, (0, 0))
        asyncio.run(store.pending())
        yield b"and the rest"

    await asyncio.to_thread(replace_file, path := folder / "other.txt", parts())
    assert path.read_bytes() == b"half, and the rest"
    assert await store.pending() == [first]


async def test_a_consumption_that_was_cut_off_is_repeated_and_counts_once(folder, store):
    await store.put(asked := make_confirmation())
    await store.decide(asked.confirmation_id, YES)
    content = [
        (path, path.read_bytes()) for path in folder.iterdir() if asked.confirmation_id in path.name
    ]
    await store.consume(asked.confirmation_id)
    for path, text in content:  # as if it had been killed before it removed them
        path.write_bytes(text)
    await FileConfirmationStore(folder).consume(asked.confirmation_id)
    assert len((folder / "history.jsonl").read_text().splitlines()) == 2
    assert len(await store.history()) == 1


async def test_a_torn_line_costs_no_other(folder, store):
    asked = [make_confirmation() for _ in range(3)]
    await store.record(asked[0], YES)
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"confirmation": {')
    await store.record(asked[1], YES)
    await store.record(asked[2], YES)
    assert [each.confirmation for each in await store.history()] == asked[::-1]


async def test_the_history_is_bounded(folder, store, monkeypatch):
    monkeypatch.setattr(files, "MAX_HISTORY_BYTES", 5000)
    asked = [make_confirmation() for _ in range(40)]
    for each in asked:
        await store.record(each, YES)
    records = await store.history()
    assert 5 < len(records) < 40
    assert [each.confirmation for each in records] == asked[::-1][: len(records)]
    assert sum(path.stat().st_size for path in folder.glob("history*")) < 12_000


async def test_several_write_the_history_at_once(folder, monkeypatch):
    monkeypatch.setattr(files, "MAX_HISTORY_BYTES", 100_000)
    stores = [FileConfirmationStore(folder) for _ in range(4)]
    asked = [make_confirmation() for _ in range(200)]
    await asyncio.gather(
        *(stores[number % 4].record(each, YES) for number, each in enumerate(asked))
    )
    records = await stores[0].history(limit=1000)
    ids = {each.confirmation_id for each in asked}
    assert {each.confirmation.confirmation_id for each in records} == ids


@pytest.mark.parametrize(
    ("seconds", "rest", "steady"),
    [(0.05, 1, False), (0.2, 1, True), (0.2, 0, False), (3, 0, True), (-10, 1, False)],
)
def test_a_time_tells_once_the_clock_has_moved_on(seconds, rest, steady):
    changed = time.time_ns() - int(seconds * 1e9)
    assert is_steady(changed - changed % 1_000_000 + rest) == steady
