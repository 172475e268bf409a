"""What streaming costs: mochi-server beside a raw relay (a) and the usual stack (b).

    python benchmarks/streaming.py            # all, about 20 minutes on two cores
    python benchmarks/streaming.py --quick    # a smaller look, about 4 minutes

All three do whole turns with the session written, take their tokens from one upstream and are read
by one client, in interleaved rounds; the server under test has a core of its own. Exits with 1 when
a bar is missed. benchmarks/README.md says how to read the table.
"""

import argparse
import asyncio
import gc
import resource
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop
from streaming_peers.client import Result, load
from streaming_peers.processes import LOAD_CORE, Server, pin, server, upstream
from streaming_peers.report import GAP_MS, OURS, RAW, USUAL, Row, judge, median, show

PACE_MS = 20
SLACK_SECONDS = 3.0
"""After the last token of a paced load is due; what comes later is not delivered."""
MAX_SECONDS = 300


@dataclass(frozen=True)
class Scenario:
    """One kind of load."""

    name: str
    streams: int
    tokens: int = 1000
    delay_ms: int = 0
    turns: int = 1
    """Of each connection, one after another."""
    rounds: int = 5

    @property
    def model(self) -> str:
        """The upstream reads its orders from the model's name."""
        return f"bench-{self.tokens}-{self.delay_ms}ms:latest"

    @property
    def offered(self) -> int:
        return self.streams * self.turns * self.tokens

    @property
    def ramp(self) -> float:
        """Paced streams open within two seconds, not in one instant."""
        return 2.0 if self.delay_ms else 0.0

    @property
    def limit(self) -> float:
        if not self.delay_ms:
            return MAX_SECONDS
        return self.ramp + self.turns * self.tokens * self.delay_ms / 1000 + SLACK_SECONDS


SCENARIOS = (
    Scenario("1 stream", 1, turns=20),
    Scenario("32 streams", 32, turns=2),
    Scenario("256 streams", 256, rounds=3),
    Scenario("short turns, 32 clients", 32, tokens=1, turns=20),
    Scenario("100 paced", 100, delay_ms=PACE_MS, rounds=3),
    Scenario("400 paced", 400, delay_ms=PACE_MS, rounds=3),
)


def quick(scenario: Scenario) -> Scenario:
    """The same load, fewer rounds; paced turns are shorter."""
    tokens = 250 if scenario.delay_ms else scenario.tokens
    return replace(scenario, tokens=tokens, turns=max(1, scenario.turns // 4), rounds=1)


def run_load(target: Server, scenario: Scenario) -> tuple[Row, Result]:
    """One round."""
    names = target.sessions(scenario.model, scenario.streams * scenario.turns)
    sessions = [names[at :: scenario.streams] for at in range(scenario.streams)]
    gc.collect()
    gc.disable()
    before, waited = target.cpu(), target.waited()
    result = uvloop.run(load(target.port, sessions, ramp=scenario.ramp, limit=scenario.limit))
    used, waited = target.cpu() - before, target.waited() - waited
    gc.enable()
    row = Row(
        rate=result.events / result.seconds,
        turns=result.turns / result.seconds,
        cpu=used * 1e6 / max(1, result.events),
        gap50=result.gaps.percentile(0.5),
        gap99=result.gaps.percentile(0.99),
        first99=result.first.percentile(0.99),
        late99=result.late.percentile(0.99),
        waited=waited / result.seconds,
        delivered=result.events / scenario.offered,
        failures=tuple(result.failures),
    )
    return row, result


def compare(servers: list[Server], scenario: Scenario) -> dict[str, Row]:
    """All rounds of one load, the servers taking turns."""
    rows: dict[str, list[Row]] = {target.name: [] for target in servers}
    for _ in range(scenario.rounds):
        for target in servers:
            rows[target.name].append(run_load(target, scenario)[0])
    return {name: median(several) for name, several in rows.items()}


def holds(target: Server, streams: int, tokens: int) -> bool:
    """Whether every event arrives, and 99 of 100 gaps stay small. A failure is tried once more."""
    scenario = Scenario("capacity", streams, tokens=tokens, delay_ms=PACE_MS)
    for _ in range(2):
        row, _ = run_load(target, scenario)
        if row.delivered == 1 and row.gap99 < GAP_MS and not row.failures:
            return True
        time.sleep(1)  # what was cut off dies down
    return False


def capacity(target: Server, tokens: int, step: int, most: int = 1600) -> int:
    """The largest number of paced streams that holds, by halving, in whole steps."""
    good, bad = 0, most // step + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(target, middle * step, tokens):
            good = middle
        else:
            bad = middle
    return good * step


def memory(name: str, address: str, folder: Path, streams: int) -> float:
    """KiB per open stream, in a fresh process that has served a few turns."""

    async def half_way(target: Server, scenario: Scenario, sessions: list[list[str]]) -> int:
        result = Result()
        task = asyncio.create_task(
            load(target.port, sessions, ramp=scenario.ramp, limit=scenario.limit, result=result)
        )
        while result.first.total() < streams and not result.turns and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        most = target.rss()
        if (running := result.first.total()) != streams or result.turns:
            print(f"  ! {name}: {running} streams had begun, {result.turns} were over", flush=True)
        await task
        return most

    with server(name, address, folder) as target:
        run_load(target, Scenario("warm-up", 8, tokens=20, turns=4))
        scenario = Scenario("memory", streams, tokens=400, delay_ms=PACE_MS)
        sessions = [[one] for one in target.sessions(scenario.model, streams)]
        before = target.rss()
        return (uvloop.run(half_way(target, scenario, sessions)) - before) / streams / 1024


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter paced turns")
    parser.add_argument("--only", default="", help="loads whose name contains this text")
    parser.add_argument("--servers", default=f"{OURS},{RAW},{USUAL}", help="comma-separated")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    return parser.parse_args()


def main() -> int:
    """Measure, print, judge."""
    chosen = arguments()
    names = chosen.servers.split(",")
    # For the client, the upstream and the peers; ours starts with a shell's limit and raises it.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pin(LOAD_CORE)
    rows: dict[str, dict[str, Row]] = {}
    held: dict[str, int] = {}
    kib: dict[str, float] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        address = stack.enter_context(upstream())
        servers = [stack.enter_context(server(name, address, folder / name)) for name in names]
        for target in servers:
            run_load(target, Scenario("warm-up", 8, tokens=50, turns=4))
        for scenario in SCENARIOS:
            if chosen.only in scenario.name:
                load_ = quick(scenario) if chosen.quick else scenario
                rows[scenario.name] = compare(servers, load_)
                show(scenario.name, rows[scenario.name])
        if chosen.only in "capacity":
            tokens, step = (150, 200) if chosen.quick else (500, 50)
            held = {target.name: capacity(target, tokens, step) for target in servers}
            print(f"\nmost streams at {1000 // PACE_MS} tokens/s, all delivered, p99 < {GAP_MS} ms")
            for who, streams in held.items():
                print(f"  {who:15}{streams:10}")
        if chosen.only in "memory":
            kib = {name: memory(name, address, folder / f"{name}-memory", 200) for name in names}
            print("\nKiB per open stream")
            for who, size in kib.items():
                print(f"  {who:15}{size:10.1f}")
    return judge(rows, held, kib, chosen.json)


if __name__ == "__main__":
    raise SystemExit(main())
