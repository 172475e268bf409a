"""What one core, one machine and a cluster carry, and what breaks first: measured, then simulated.

    python benchmarks/capacity.py            # about four minutes on two quiet cores
    python benchmarks/capacity.py --quick    # about one

First the costs of this server: a turn, an event, an open stream, an idle socket, a stored
conversation. Then people who write, read and think are simulated with these costs on one core, and
the same people are let loose on the server: both must agree within a fifth. Last, the simulation
says how many people a core carries, and what that needs for 10,000 and 1,000,000 of them.
docs/explanation/capacity.md says how to read it.
"""

import argparse
import asyncio
import heapq
import math
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvloop
from sockets import idle_sockets
from streaming import Scenario, memory, run_load
from streaming_peers.client import Histogram, Result, Stream
from streaming_peers.processes import LOAD_CORE, Server, pin, server, upstream
from streaming_peers.report import OURS

PACE_MS = 20
PACE = PACE_MS / 1000
MEAN_TOKENS = 215
"""Of a reply: LMSYS-Chat-1M (arXiv 2309.11998), a million conversations, has 214.5."""
SPREAD = 1.0
"""Of the logarithm of a reply's tokens: half of them are shorter than 130."""
MOST_TOKENS = 2000
THINKING = 60.0
"""Seconds, in the mean, from an answer to the next question of somebody whose chat is open."""
HASTE = 6.0
"""The same in the run that is measured, so that few people make load enough."""
TURNS_OF_A_CHAT = 2.0
"""In the mean, of LMSYS-Chat-1M too."""
AGREEMENT = 0.2
FIRST_SECONDS, GAP_SECONDS = 1.5, 0.05
"""99 of 100 first tokens, and pauses between tokens, that people put up with."""
MACHINE_CORES, MACHINE_GB = 16, 64


@dataclass(frozen=True)
class Costs:
    """What was measured; seconds of CPU, and bytes."""

    turn: float
    event: float
    stream: float
    socket: float
    conversation: float
    flush: float
    """Seconds in which the disk makes one small file durable."""
    first: float
    """Seconds until the first token of somebody who is alone."""


@dataclass
class Load:
    """What people have done to one core."""

    seconds: float
    turns: int = 0
    events: int = 0
    cpu: float = 0.0
    streams: float = 0.0
    """Open at a time, in the mean."""
    first50: float = 0.0
    first99: float = 0.0
    gap99: float = 0.0


def lengths(chance: random.Random) -> Iterator[int]:
    """Tokens of replies."""
    middle = math.log(MEAN_TOKENS) - SPREAD**2 / 2
    while True:
        yield min(MOST_TOKENS, max(1, round(chance.lognormvariate(middle, SPREAD))))


def simulate(costs: Costs, people: int, seconds: float, thinking: float, seed: int = 1) -> Load:
    """One core does, one after another, what is asked of it: begin a turn, pass on a token."""
    chance = random.Random(seed)
    tokens = lengths(chance)
    load = Load(seconds)
    first, gaps = Histogram(), Histogram()
    # When, whose, tokens left, tokens of the reply, when the one before was passed on.
    due = [(chance.uniform(0, thinking), person, 0, 0, 0.0) for person in range(people)]
    heapq.heapify(due)
    free = 0.0
    while due and due[0][0] < seconds:
        at, person, left, whole, before = heapq.heappop(due)
        work = costs.event if left else costs.turn
        free = max(free, at) + work
        load.cpu += work
        if not left:
            left = whole = next(tokens)
            load.turns += 1
            heapq.heappush(due, (free + costs.first - work, person, left, whole, at))
            continue
        load.events += 1
        (first if left == whole else gaps).add(free - before)
        if left > 1:
            heapq.heappush(due, (max(at + PACE, free), person, left - 1, whole, free))
        else:
            heapq.heappush(due, (at + chance.expovariate(1 / thinking), person, 0, 0, 0.0))
    load.streams = load.events * PACE / seconds
    load.first50, load.first99 = first.percentile(0.5) / 1000, first.percentile(0.99) / 1000
    load.gap99 = gaps.percentile(0.99) / 1000
    return load


async def person(target: Server, sessions: list[str], result: Result, seed: float) -> None:
    """Ask, read, think and ask again, each time on a new connection: an idle one is closed."""
    loop, chance = asyncio.get_running_loop(), random.Random(seed)
    await asyncio.sleep(chance.uniform(0, HASTE))
    for session in sessions:
        stream = Stream(target.port, [session], result)
        await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", target.port)
        await stream.finished
        await asyncio.sleep(chance.expovariate(1 / HASTE))
    result.failures.append("somebody had too few sessions")


async def let_loose(target: Server, people: int, seconds: float) -> tuple[Result, float]:
    """The people of the simulation on the server itself; what they saw, and its CPU."""
    result, chance = Result(), random.Random(1)
    tokens = lengths(chance)
    turns = math.ceil(6 * seconds / (HASTE + MEAN_TOKENS * PACE))
    models = [
        [f"bench-{next(tokens)}-{PACE_MS}ms:latest" for _ in range(turns)] for _ in range(people)
    ]
    sessions = [[target.sessions(model, 1)[0] for model in several] for several in models]
    began, before = time.monotonic(), target.cpu()
    everyone = [
        asyncio.create_task(person(target, several, result, chance.random()))
        for several in sessions
    ]
    await asyncio.wait(everyone, timeout=seconds)
    result.seconds, used = time.monotonic() - began, target.cpu() - before
    for each in everyone:
        each.cancel()
    await asyncio.gather(*everyone, return_exceptions=True)
    return result, used


def measured(target: Server, people: int, seconds: float) -> Load:
    """What the server did for the people."""
    result, used = uvloop.run(let_loose(target, people, seconds))
    if result.failures:
        raise RuntimeError(f"turns failed: {result.failures}")
    return Load(
        seconds=result.seconds,
        turns=result.first.total(),
        events=result.events,
        cpu=used,
        streams=result.events * PACE / result.seconds,
        first50=result.first.percentile(0.5) / 1000,
        first99=result.first.percentile(0.99) / 1000,
        gap99=result.gaps.percentile(0.99) / 1000,
    )


async def kib_of_a_socket(target: Server, count: int) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        before = target.rss()
        async with idle_sockets(http, target, count):
            return (target.rss() - before) / count


def seconds_of_a_flush(folder: Path, count: int = 200, at_once: int = 8) -> float:
    """Of a small file that is written, flushed and renamed, as a session is, among several."""

    def flush(at: int) -> None:
        with (folder / f"new-{at}").open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        (folder / f"new-{at}").rename(folder / f"old-{at}")

    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(flush, range(count)))
    return (time.monotonic() - began) / count


def bytes_on_disk(folder: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*.json"))


def costs_of(target: Server, address: str, folder: Path, *, quick: bool) -> Costs:
    """Each cost by a load that has little else."""
    rounds = 1 if quick else 3
    short = Scenario("turns", 16, tokens=1, turns=25 * rounds)
    run_load(target, Scenario("warm-up", 8, tokens=20, turns=4))
    row, _ = run_load(target, short)
    turn = row.cpu / 1e6
    long = Scenario("events", 100, tokens=250 * rounds, delay_ms=PACE_MS)
    row, result = run_load(target, long)
    event = row.cpu / 1e6 - turn * result.turns / result.events
    before = bytes_on_disk(folder)
    run_load(target, Scenario("stored", 50, tokens=int(MEAN_TOKENS * TURNS_OF_A_CHAT)))
    conversation = (bytes_on_disk(folder) - before) / 50
    _, alone = run_load(target, Scenario("alone", 1, tokens=2, delay_ms=PACE_MS, turns=30))
    return Costs(
        turn=turn - event,
        event=event,
        first=alone.first.percentile(0.5) / 1000,
        stream=memory(OURS, address, folder / "memory", 50 if quick else 200) * 1024,
        socket=uvloop.run(kib_of_a_socket(target, 200 if quick else 1000)),
        conversation=conversation,
        flush=seconds_of_a_flush(folder),
    )


def people_of_a_core(costs: Costs, seconds: float) -> tuple[int, Load]:
    """Most people, in steps of 50, whose tokens come in time."""
    busy = costs.turn + MEAN_TOKENS * costs.event
    low, high = 0, math.ceil(2 * (THINKING + MEAN_TOKENS * PACE) / busy / 50)
    best = Load(seconds)
    while high - low > 1:
        middle = (low + high) // 2
        load = simulate(costs, middle * 50, seconds, THINKING)
        if load.first99 <= FIRST_SECONDS and load.gap99 <= GAP_SECONDS:
            low, best = middle, load
        else:
            high = middle
    return low * 50, best


def agree(simulated: Load, real: Load) -> bool:
    """Print both; whether they agree in what capacity is reckoned from."""
    print(f"\n{'':26}{'simulated':>12}{'measured':>12}")
    rows = {
        "turns": (simulated.turns / simulated.seconds, real.turns / real.seconds, "/s"),
        "tokens": (simulated.events / simulated.seconds, real.events / real.seconds, "/s"),
        "streams at a time": (simulated.streams, real.streams, ""),
        "core in use": (
            simulated.cpu / simulated.seconds * 100,
            real.cpu / real.seconds * 100,
            "%",
        ),
        "first token, median": (simulated.first50 * 1000, real.first50 * 1000, "ms"),
        "first token, 99 of 100": (simulated.first99 * 1000, real.first99 * 1000, "ms"),
        "pause, 99 of 100": (simulated.gap99 * 1000, real.gap99 * 1000, "ms"),
    }
    for name, (ours, theirs, unit) in rows.items():
        print(f"  {name:24}{ours:12.1f}{theirs:12.1f} {unit}")
    judged = list(rows.values())[:4]
    return all(abs(ours / theirs - 1) <= AGREEMENT for ours, theirs, _ in judged)


def show(costs: Costs, people: int, per_core: int, load: Load) -> None:
    """What so many open chats need, and the part of one machine that each of it is."""
    cores = people / per_core
    turns = people / per_core * load.turns / load.seconds
    streams = people / per_core * load.streams
    gigabytes = (streams * costs.stream + people * costs.socket) / 1e9
    needs = {
        f"cores, of {MACHINE_CORES}": (cores, MACHINE_CORES),
        f"memory in GB, of {MACHINE_GB}": (gigabytes, MACHINE_GB),
        "files made durable a second": (2 * turns, 1 / costs.flush),
        "connections": (people + 2 * streams, 1_000_000),
    }
    print(f"\n{people:,} open chats: {turns:,.0f} turns a second, {streams:,.0f} streams at a time")
    for name, (need, most) in needs.items():
        print(f"  {name:32}{need:14,.1f}{need / most:10.2f} machines")
    print(f"  {'tokens a second of the models':32}{streams / PACE:14,.0f}")
    gigabytes_a_day = turns / TURNS_OF_A_CHAT * 86_400 * costs.conversation / 1e9
    print(f"  {'GB a day, if nobody slept':32}{gigabytes_a_day:14,.1f}")
    worst = max(needs, key=lambda name: needs[name][0] / needs[name][1])
    print(f"  breaks first: {worst}")


def main() -> int:
    """Measure, simulate, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter loads")
    quick = parser.parse_args().quick
    people, seconds = (300, 12.0) if quick else (600, 30.0)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pin(LOAD_CORE)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, upstream() as address:
        folder = Path(name)
        with server(OURS, address, folder / "server") as target:
            costs = costs_of(target, address, folder, quick=quick)
            print(
                f"a turn {costs.turn * 1e3:.2f} ms of CPU, a token {costs.event * 1e6:.0f} us; "
                f"an open stream {costs.stream / 1024:.0f} KiB, an idle socket "
                f"{costs.socket / 1024:.0f} KiB, a stored conversation "
                f"{costs.conversation / 1024:.1f} KiB;\na flush {costs.flush * 1e3:.2f} ms, "
                f"the first token of one person {costs.first * 1e3:.1f} ms"
            )
            real = measured(target, people, seconds)
        kept = agree(simulate(costs, people, seconds, HASTE), real)
        per_core, load = people_of_a_core(costs, 60.0 if quick else 180.0)
        print(f"\none core: {per_core:,} open chats, {load.streams:.0f} streams at a time")
        for many in (10_000, 1_000_000):
            show(costs, many, per_core, load)
    print(f"\nsimulation and server agree within {AGREEMENT:.0%}: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
