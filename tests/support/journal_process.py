"""A process of a test of the journal: ``python -m tests.support.journal_process ROLE FOLDER …``."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path

from tests.support.runs import deltas, finish, head, journal_in


def say(text: object) -> None:
    os.write(1, f"{text}\n".encode())


async def write(folder: Path, runs: str) -> None:
    """Write runs for ever, and say which number of all of them is in the journal."""
    journal = journal_in(folder)
    writers = [journal.begin(head(f"run_{number}")) for number in range(int(runs))]
    number = 0
    while True:
        for _ in range(3):
            number += 1
            for writer in writers:
                writer.add(number, deltas(number))
        await journal.flush()
        say(number)


async def take(folder: Path, run_id: str) -> None:
    """Take a run when told so, and say whether it worked."""
    journal = journal_in(folder)
    say("ready")
    sys.stdin.readline()
    writer = await journal.take(run_id)
    say("none" if writer is None else "taken")
    sys.stdin.readline()


async def fill(folder: Path, size: str) -> None:
    """Write more than a file may hold, say how much is in memory only, then write the rest."""
    journal = journal_in(folder)
    writers = [journal.begin(head(f"run_{number}")) for number in range(5)]
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), hard))
    for number in range(1, 101):
        for writer in writers:
            writer.add(number, deltas(number))
        await journal.flush()
        await asyncio.sleep(0.001)
    await finish(journal, writers.pop())
    say("full")
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for writer in writers:
        writer.add(101, deltas(101))
        writer.note("end", state="done")
    await journal.flush()
    say("free")
    sys.stdin.readline()


if __name__ == "__main__":
    role, where, *rest = sys.argv[1:]
    asyncio.run({"write": write, "take": take, "fill": fill}[role](Path(where), *rest))
