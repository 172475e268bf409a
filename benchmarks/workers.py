"""How much more two workers stream than one: ``python benchmarks/workers.py [--quick]``.

The client and the upstream need processors too, of which there may be no more than two. So they are
measured apart, and leave the processors to the workers: what counts is the events of all workers
for each second that the busiest one has computed, which is what they would stream if each had a
core of its own. Two get twice the streams, which come at a pace: what an event costs depends on how
busy a process is. Exits with 1 when two give less than 1.7 times the events of one.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from streaming_peers.client import load
from streaming_peers.processes import Server, family, give_way, server, upstream

STREAMS = 150
"""Of each worker."""
MODEL = "bench-250-20ms:latest"
RAMP_SECONDS = 2.0
BAR = 1.7
MAX_SECONDS = 300


def cpu(target: Server) -> dict[int, float]:
    """Seconds that each process of a server has computed."""
    # The kernel's clock of a process, as ``Server.cpu`` reads it.
    return {one.pid: time.clock_gettime((~one.pid << 3) | 2) for one in family(target.pid)}


def spread(target: Server) -> None:
    """Let its processes use every core."""
    for one in family(target.pid):
        os.sched_setaffinity(one.pid, range(os.cpu_count() or 1))


def events_per_second(target: Server, streams: int) -> float:
    names = target.sessions(MODEL, streams)
    before = cpu(target)
    sessions = [[name] for name in names]
    result = uvloop.run(load(target.port, sessions, ramp=RAMP_SECONDS, limit=MAX_SECONDS))
    if result.failures or result.turns != streams:
        raise SystemExit(f"{result.turns} turns ended; failures: {result.failures[:3]}")
    busiest = max(used - before.get(pid, 0.0) for pid, used in cpu(target).items())
    return result.events / busiest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, upstream() as address:
        places = [Path(folder) / str(workers) for workers in rates]
        with (
            server("mochi-server", address, places[0]) as one,
            server("mochi-server", address, places[1], workers=2) as two,
        ):
            give_way()
            for target in (one, two):
                spread(target)
                events_per_second(target, 20)
            for _ in range(2 if quick else 5):
                for workers, target in ((1, one), (2, two)):
                    rates[workers].append(events_per_second(target, STREAMS * workers))
    medians = {workers: statistics.median(several) for workers, several in rates.items()}
    for workers, rate in medians.items():
        print(f"  {workers} worker(s): {rate:,.0f} events for a second of the busiest one")
    factor = medians[2] / medians[1]
    print(f"  {'ok  ' if factor >= BAR else 'MISS'} {factor:.2f} times (bar {BAR})")
    return 0 if factor >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
