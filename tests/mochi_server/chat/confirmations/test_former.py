"""Confirmations that an earlier version has kept in files are taken over once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from mochi_server.chat.confirmations.confirmation import ConfirmationRecord, dump
from mochi_server.core.clock import timestamp
from mochi_server.errors import ConfirmationNotFound
from tests.support.confirmations import NO, START, YES, make_confirmation, store_in

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
def folder(tmp_path):
    """The state of the former version, also with what it could not read."""
    former = tmp_path / "confirmations"
    former.mkdir()
    for each in (PENDING, DECIDED, UNREADABLE):
        (former / f"{each.confirmation_id}.json").write_bytes(dump({**each.fields(), "newer": 1}))
    (former / f"{DECIDED.confirmation_id}.decision.json").write_bytes(dump(DECISION.payload()))
    (former / f"{UNREADABLE.confirmation_id}.decision.json").mkdir()
    (former / "conf_1.json").write_text("{")
    (former / "conf_2.json").write_bytes(dump(PENDING.fields()))
    (former / "conf_3.json").symlink_to(f"{PENDING.confirmation_id}.json")
    (former / "conf_4.decision.json").touch()
    (former / ".conf_5.json.0123456789abcdef.tmp").touch()
    lines = [json.dumps(each.fields(), separators=(",", ":")) for each in RECORDS]
    (former / "history.1.jsonl").write_text("".join(f"{line}\n" for line in lines[:2]))
    (former / "history.jsonl").write_text(f'{lines[2]}\n{{"confirma\n{lines[3]}\n{lines[3]}\n')
    return tmp_path


async def test_all_that_was_kept_in_files_is_taken_over_once(folder, caplog):
    stores = [store_in(folder) for _ in range(3)]
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
    assert not (folder / "confirmations").exists()
    assert caplog.text.count("cannot be read") == 3
    await store.decide(PENDING.confirmation_id, YES)
    for each in (PENDING, DECIDED):
        await store.consume(each.confirmation_id)
    with pytest.raises(ConfirmationNotFound):
        await store_in(folder).decide(DECIDED.confirmation_id, YES)


async def test_what_is_left_in_files_after_it_was_taken_over_comes_not_again(folder, monkeypatch):
    """As where the process was killed before it had removed them."""
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        store = store_in(folder)
        await store.end_run("run_1")
    assert (folder / "confirmations").exists()
    assert await store_in(folder).pending() == []
    assert not (folder / "confirmations").exists()


async def test_a_history_that_cannot_be_read_costs_nothing_else(folder, caplog):
    (folder / "confirmations" / "history.1.jsonl").unlink()
    (folder / "confirmations" / "history.1.jsonl").symlink_to("history.jsonl")
    store = store_in(folder)
    assert await store.pending() == [PENDING]
    assert await store.history() == RECORDS[:1:-1]
    assert "history.1.jsonl cannot be read" in caplog.text
