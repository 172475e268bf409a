"""How soon runs are stopped, and how much of what a model said is lost with a killed server.

``python benchmarks/runs.py [--quick]`` takes about two minutes. Two servers share a folder; a
hundred runs are stopped at the process that executes them and at the other one, each beside a plain
request that is sent in the same way; then servers are killed while twenty runs write, and the runs
are read to their end at the other server. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mochi_server.chat.runs.others import WATCH_SECONDS
from tests.support.chance import moments
from tests.support.fake_ollama import FakeOllama
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server

STOPPED, KILLED = 100, 20
"""Runs that are stopped, and that a killed server executes."""
WORDS = [f"{number} " for number in range(10_000)]
STOPPED_PAUSE, KILLED_PAUSE = 0.05, 0.01
"""Seconds between two words of a run."""
STOP_BAR = 4.0
"""Median time until a run's model is let go, as a multiple of that of a plain request.

Where another process executes the run, the pause is added in which that looks for requests."""
LOST_BAR_MS = 100.0
"""Age of the oldest word that is lost, beyond how late this program itself was."""
LONGEST_SECONDS = 2.0
"""Life of a server at most, from its first message on."""


class Report:
    """Prints rows; whether a bar was missed."""

    missed = False

    def show(self, text: str, value: float, bar: float) -> None:
        self.missed |= value > bar
        print(f"  {'ok  ' if value <= bar else 'MISS'} {text} (bar {bar:g})", flush=True)


class Run:
    """A run, its reader, and what the model said in it."""

    def __init__(self, ollama: FakeOllama, session_id: str, pause: float) -> None:
        self.message = f"Go, {session_id}."
        self.said = ollama.reply(WORDS, delay=pause, match=self.message)
        self.reader = RunReader(session_id)

    async def stopped_ms(self, server: Server) -> float:
        """Stop it; return the time from the request to the end of the model's connection."""
        begin = time.monotonic()
        status, answer = await server.post(f"/runs/{self.reader.run_id}/stop")
        assert (status, answer["state"]) == (200, "stopped"), answer
        while self.said.left is None:  # noqa: ASYNC110 - of this process itself
            await asyncio.sleep(0)
        return (self.said.left - begin) * 1e3

    async def told_ms(self, server: Server) -> float:
        """Return the time of a plain request."""
        begin = time.monotonic()
        status, answer = await server.get(f"/runs/{self.reader.run_id}")
        assert (status, answer["state"]) == (200, "running"), answer
        return (time.monotonic() - begin) * 1e3


@asynccontextmanager
async def speaking(
    ollama: FakeOllama, server: Server, count: int, pause: float
) -> AsyncIterator[list[Run]]:
    """Runs of one server whose models speak; the block ends them all."""
    runs = [Run(ollama, await server.new_session(), pause) for _ in range(count)]
    sending = [asyncio.ensure_future(run.reader.send(server, run.message)) for run in runs]
    for run in runs:
        await run.reader.said.wait()
    yield runs
    await asyncio.gather(*sending)


async def one_by_one(calls: list[Callable[[], Coroutine[Any, Any, float]]]) -> list[float]:
    return [await call() for call in calls]


async def at_once(calls: list[Callable[[], Coroutine[Any, Any, float]]]) -> list[float]:
    return await asyncio.gather(*(call() for call in calls))


async def compare_stops(report: Report, ollama: FakeOllama, one: Server, other: Server) -> None:
    """Stop a hundred runs in each way."""
    for where, server in (("the same process", one), ("another process", other)):
        for how, wait in (("one by one", one_by_one), ("at once", at_once)):
            async with speaking(ollama, one, STOPPED, STOPPED_PAUSE) as runs:
                told = statistics.median(await wait([partial(run.told_ms, server) for run in runs]))
                stopped = statistics.median(
                    await wait([partial(run.stopped_ms, server) for run in runs])
                )
            ollama.forget()
            watching = WATCH_SECONDS * 1e3 if server is other else 0.0
            ratio = stopped / (told + watching)
            text = f"{STOPPED} stops {how} at {where}: median {stopped:.0f} ms"
            report.show(f"{text}, a plain request {told:.0f} ms: {ratio:.1f}", ratio, STOP_BAR)


async def kill(folder: Path, ollama: FakeOllama, other: Server, life: float) -> float:
    """Kill a server; return the age of the oldest lost word beyond this program's own delay."""
    async with running_server(data_dir=folder, ollama=ollama) as server:
        async with speaking(ollama, server, KILLED, KILLED_PAUSE) as runs:
            await asyncio.sleep(life)
            killed = time.monotonic()
            server.process.send_signal(signal.SIGKILL)
            await server.process.wait()
        oldest = [await lost_ms(run, other, killed) for run in runs]
    times = sorted(moment for run in runs for moment in run.said.sent if moment < killed)
    late = max(
        (after - before for before, after in pairwise(times) if after > killed - 0.5), default=0.0
    )
    ollama.forget()
    return max(oldest) - late * 1e3


async def lost_ms(run: Run, other: Server, killed: float) -> float:
    """Read the run to its end at the other server; return the age of its oldest lost word."""
    assert await run.reader.go_on(other) == 200
    run.reader.check_whole()
    status, body = await other.get(f"/sessions/{run.reader.session_id}/messages")
    assert status == 200, body
    kept = len(body["messages"][-1]["content"].split())
    lost = [moment for moment in run.said.sent[kept:] if moment < killed]
    return (killed - lost[0]) * 1e3 if lost else 0.0


async def measure(kills: int) -> int:
    """Measure, print, judge."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with FakeOllama(one_at_a_time=False) as ollama:
            async with (
                running_server(data_dir=folder, ollama=ollama) as one,
                running_server(data_dir=folder, ollama=ollama) as other,
            ):
                await compare_stops(report, ollama, one, other)
            async with running_server(data_dir=folder, ollama=ollama) as other:
                rng = random.Random(20261123)
                lost = [
                    await kill(folder, ollama, other, life)
                    for life in moments(rng, kills, LONGEST_SECONDS)
                ]
    middle, worst = statistics.median(lost), max(lost)
    text = f"lost words of {KILLED} runs in {kills} kills: median {middle:.0f} ms"
    report.show(f"{text}, oldest {worst:.0f} ms", middle, LOST_BAR_MS)
    return int(report.missed)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer kills")
    return asyncio.run(measure(3 if parser.parse_args().quick else 12))


if __name__ == "__main__":
    raise SystemExit(main())
