"""Runs that an earlier version has kept in files: taken over once, and then gone."""

from __future__ import annotations

import asyncio

from mochi_server.chat.journal.records import Note, encode_events, encode_head, encode_note
from tests.support.runs import (
    deltas,
    events_of,
    finish,
    head,
    journal_in,
    lines_of,
    notes_of,
    numbered,
)


def write_files(folder) -> None:
    """Write what a process left that was killed, and another one that had taken a run of it."""
    runs = folder / "runs"
    runs.mkdir(parents=True)

    def line(run_id: str, encoded: bytes) -> bytes:
        return run_id.encode() + b" " + encoded + b"\n"

    def note(name: str, **data: object) -> bytes:
        return encode_note(Note(name, data))

    heads = {name: line(name, encode_head(head(name))) for name in ("waits", "dead", "done", "own")}
    (runs / "abc.000001.jsonl").write_bytes(
        b"".join(heads.values())
        + line("waits", encode_events(1, deltas(1, 2)))
        + line("dead", encode_events(1, deltas(1)))
        + line("own", note("waiting"))
        + b"\0\0\nno_json {\n"
    )
    (runs / "abc.000002.jsonl").write_bytes(
        line("waits", note("waiting"))
        + line("done", note("end", state="failed", code="X"))
        + b'dead [2,["torn'
    )
    (runs / "own.run").write_bytes(
        heads["own"]
        + line("own", note("waiting"))
        + line("own", encode_events(1, deltas(1)))
        + line("own", note("waiting"))
    )
    for name in ("abc.lock", "own.tmp"):
        (runs / name).touch()


async def test_runs_are_taken_over_once_by_whichever_process_comes_first(tmp_path):
    write_files(tmp_path)
    journals = [journal_in(tmp_path) for _ in range(3)]
    lists = await asyncio.gather(*(journal.runs() for journal in journals))
    for listed in lists:
        states = {run.run_id: (run.end, run.waits, run.is_held) for run in listed}
        assert states == {
            "waits": (None, True, False),
            "own": (None, True, False),
            "dead": (None, False, False),
            "done": ("failed", False, False),
        }
    assert list((tmp_path / "runs").iterdir()) == []
    one, two, _ = journals
    assert await one.dead_runs() == ["dead"]
    lines = await lines_of(two, "waits")
    assert (lines[0], events_of(lines)) == (head("waits"), numbered(1, 2))
    assert notes_of(await lines_of(two, "own")) == ["waiting", "waiting"]

    writer = await two.take("waits")
    assert await one.take("waits") is None
    writer.note("resumed")
    writer.add(3, deltas(3))
    await finish(two, writer)
    assert events_of(await lines_of(one, "waits")) == numbered(1, 2, 3)
    await finish(one, await one.take("dead"), "interrupted")
    assert events_of(await lines_of(two, "dead")) == numbered(1)
    for journal in journals:
        await journal.aclose()


async def test_runs_of_a_process_that_takes_others_over_stay_its_own(tmp_path):
    write_files(tmp_path)
    one, two = journal_in(tmp_path), journal_in(tmp_path)
    writer = one.begin(head("new"))
    await one.flush(writer)
    assert await two.dead_runs() == ["dead"]
    assert await two.take("new") is None
    await finish(one, writer)
    for journal in (one, two):
        await journal.aclose()


async def test_a_process_that_was_killed_while_it_took_runs_over_leaves_them(tmp_path):
    """It has stored them, and not yet removed the files."""
    write_files(tmp_path)
    one = journal_in(tmp_path)
    await one.runs()
    await finish(one, await one.take("waits"))
    (tmp_path / "runs" / "abc.000001.jsonl").write_bytes(b"waits {}\n")
    again = journal_in(tmp_path)
    assert {run.run_id: run.end for run in await again.runs()}["waits"] == "done"
    assert not list((tmp_path / "runs").glob("*.jsonl"))
    for journal in (one, again):
        await journal.aclose()
