"""What tools at work do to everybody else: ``/health``, and the pace of other streams.

``python benchmarks/tool_interference.py [--quick]`` takes about a minute. While one tool computes
and another one sleeps, twenty other sessions stream at 50 tokens per second; the same without any
tool. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from streaming_peers.client import Result, load

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.server import Server, running_server

STREAMS = 20
PACE_SECONDS = 0.02
SLACK_SECONDS = 3.0
"""After the last token of a stream is due; what comes later is not delivered."""
HEALTH_PAUSE = 0.02
HEALTH_BAR_MS = 100.0
"""Of the slowest answer, with tools in processes."""
MARGIN_SECONDS = 1.5
"""How much longer the tools work than anybody looks."""
BESIDE = "Work, and let the others talk."
TOOLS = '''
import time

__all__ = ["burn", "rest"]


def burn(seconds: float) -> str:
    """Compute.

    Args:
        seconds: For how long.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return "Computed."


def rest(seconds: float) -> str:
    """Sleep.

    Args:
        seconds: For how long.
    """
    time.sleep(seconds)
    return "Slept."
'''


@dataclass
class Row:
    """What was seen in one window."""

    health: list[float]
    """Milliseconds of each answer, ordered."""
    streams: Result
    offered: int

    @property
    def delivered(self) -> float:
        return self.streams.events / self.offered

    def health_at(self, share: float) -> float:
        return self.health[min(len(self.health) - 1, int(len(self.health) * share))]

    def figures(self) -> list[float]:
        gaps = self.streams.gaps
        return [
            *(self.health_at(share) for share in (0.5, 0.99, 1)),
            *(gaps.percentile(share) for share in (0.5, 0.99)),
            self.streams.events / self.streams.seconds,
        ]


class Bench:
    """One server, and the sessions on it."""

    def __init__(self, server: Server, ollama: FakeOllama, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.ollama = ollama
        self.http = http

    async def window(self, seconds: float, *, tools: bool) -> Row:
        """Look for that long, with tools at work or without."""
        sessions = [[await self.server.new_session("bench:1b")] for _ in range(STREAMS)]
        if not tools:
            return await self._look(sessions, seconds)
        working = asyncio.ensure_future(self.call_both(seconds + MARGIN_SECONDS))
        await asyncio.sleep(MARGIN_SECONDS / 2)
        row = await self._look(sessions, seconds, during=working)
        await working
        return row

    async def _look(
        self,
        sessions: list[list[str]],
        seconds: float,
        *,
        during: asyncio.Future[None] | None = None,
    ) -> Row:
        tokens = round(seconds / PACE_SECONDS)
        words = [f"word{number} " for number in range(tokens)]
        self.ollama.default_reply = Reply(words, delay=PACE_SECONDS)
        port = int(self.server.url.rpartition(":")[2])
        asking = asyncio.ensure_future(self._health(seconds, during))
        streams = await load(port, sessions, ramp=0, limit=seconds + SLACK_SECONDS)
        return Row(await asking, streams, STREAMS * tokens)

    async def _health(self, seconds: float, during: asyncio.Future[None] | None) -> list[float]:
        """How long each answer took, in milliseconds; one question after the other."""
        found = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            async with self.http.get(f"{self.server.api}/health") as response:
                await response.read()
                response.raise_for_status()
            found.append((time.perf_counter() - begun) * 1e3)
            await asyncio.sleep(HEALTH_PAUSE)
        if during is not None and during.done():
            raise RuntimeError("the tools were ready too early")
        return sorted(found)

    async def call_both(self, seconds: float) -> None:
        """A turn with both tools, which must succeed."""
        settings = {"tools": ["burn", "rest"], "execution_policy": "never_confirm"}
        session = await self.server.new_session("bench:1b", tool_settings=settings)
        calls = [{"name": name, "arguments": {"seconds": seconds}} for name in ("burn", "rest")]
        self.ollama.reply(tool_calls=calls, match=BESIDE)
        self.ollama.reply(["Well."], match=BESIDE)
        path = f"/chat/{session}/stream"
        events = [event async for event in self.server.stream(path, {"message": BESIDE})]
        results = [event.data for event in events if event.event == "tool_result"]
        if [result["success"] for result in results] != [True, True]:
            raise RuntimeError(f"the tools failed: {results}")


async def measure(seconds: float) -> list[Row]:
    """Without tools, and with them."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        (folder / "tools").mkdir()
        (folder / "tools" / "__init__.py").write_text(TOOLS, encoding="utf-8")
        async with (
            FakeOllama(any_model=True, one_at_a_time=False) as ollama,
            running_server(data_dir=folder, ollama=ollama) as server,
            aiohttp.ClientSession() as http,
        ):
            bench = Bench(server, ollama, http)
            await bench.call_both(0.2)
            await bench.window(0.5, tools=False)
            return [await bench.window(seconds, tools=tools) for tools in (False, True)]


HEAD = ("", "health p50", "p99", "max", "gap p50", "p99", "events/s", "delivered", "own p99")
"""``own`` is how late this program itself woke, which is the upstream and the client."""


def show(rows: list[Row]) -> None:
    """A table, in milliseconds."""
    print("while one tool computes and another one sleeps, in milliseconds:")
    print(f"  {HEAD[0]:26}" + "".join(f"{name:>11}" for name in HEAD[1:]))
    quiet, busy = rows
    for name, row in (("no tool", quiet), ("tools at work", busy)):
        figures = "".join(f"{figure:11.2f}" for figure in row.figures())
        own = row.streams.late.percentile(0.99)
        print(f"  {name:26}{figures}{row.delivered:11.1%}{own:11.2f}")
    pairs = zip(busy.figures(), quiet.figures(), strict=True)
    ratios = "".join(f"{a / b if b else 0:10.2f}x" for a, b in pairs)
    print(f"  {'  busy by quiet':26}{ratios}", flush=True)


def judge(rows: list[Row]) -> bool:
    """Print the bars; whether one was missed."""
    busy = rows[1]
    failures = [why for row in rows for why in row.streams.failures]
    slowest = busy.health[-1]
    checks = [
        (slowest < HEALTH_BAR_MS, f"slowest /health: {slowest:.1f} ms (bar 100)"),
        (busy.delivered == 1, f"delivered: {busy.delivered:.1%} (bar 100%)"),
        (not failures, "no failed stream"),
    ]
    for good, text in checks:
        print(f"  {'ok  ' if good else 'MISS'} {text}")
    for why in failures:
        print(f"  ! {why}")
    return not all(good for good, _ in checks)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter")
    seconds = 3.0 if parser.parse_args().quick else 10.0
    rows = asyncio.run(measure(seconds))
    show(rows)
    load_average = " ".join(f"{each:.2f}" for each in os.getloadavg())
    print(f"  load average {load_average}; trust a run where 'own p99' is a few milliseconds")
    return judge(rows)


if __name__ == "__main__":
    raise SystemExit(main())
