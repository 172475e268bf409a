"""What a run notes before it acts, where the journal could not be written before."""

from __future__ import annotations

from mochi_server.chat.runs.run import Run
from mochi_server.protocol.events import ContentDelta
from tests.support.disk import full_disk
from tests.support.runs import head, journal_in


async def test_a_call_that_must_be_noted_is_noted_as_soon_as_that_is_possible(tmp_path):
    """Else a call that a person has just approved is refused, until others write again."""
    journal = journal_in(tmp_path)
    run = Run(head(), journal)
    run.begin()
    with full_disk():
        await run.emit([run.head.start()])
        assert not await run.started("session", "call_1", unless_failing=False)
    await run.emit([ContentDelta("There is room again.")])
    assert await run.started("session", "call_2", unless_failing=False)
    await journal.aclose()
