"""What a run notes before it acts, where the journal could not be written before."""

from __future__ import annotations

import asyncio

from mochi_server.chat.runs.run import Run
from tests.support.disk import full_disk
from tests.support.runs import head, journal_in


async def test_a_call_that_must_be_noted_is_noted_as_soon_as_that_is_possible(tmp_path):
    """Else a call that a person has just approved is refused, until others write again."""
    journal = journal_in(tmp_path)
    run = Run(head(), journal)
    run.begin()
    with full_disk():
        await run.emit([run.head.start()])
        assert not await run.started("session", "call_1")
        starting = asyncio.ensure_future(run.started("session", "call_2", seconds=30))
        done, _ = await asyncio.wait({starting}, timeout=0.3)
        assert not done
    assert await starting
    await journal.aclose()
