"""10,000 open confirmations: how long a list takes, and how soon a decision is followed.

``python benchmarks/confirmations.py [--quick]``. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mochi_server.chat.confirmations.confirmation import Confirmation
from mochi_server.core.clock import timestamp
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.server import Server, running_server
from tests.support.tools import write_tools

LISTINGS = 50
DECISIONS = 20
LIST_MS = 50.0
START_MS = 150.0
GROWTH_MIB = 5.0
"""Of the memory, between the first listing and the last."""

TOOL = '''
import time

__all__ = ["begin"]


def begin(place: str) -> str:
    """Say when it began.

    Args:
        place: The file that is to say it.
    """
    began = time.monotonic()
    with open(place, "w") as file:
        file.write(repr(began))
    return "done"
'''

FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "of a session": {"session_id": "00000003e7"},
    "of an agent": {"agent": "agent7"},
    "of a tool": {"tool": "tool3"},
    "older than 1000 s": {"older_than": 1000},
    "a page of 1000": {"limit": 1000},
}


def fill(folder: Path, count: int) -> None:
    """Write what processes have asked that are gone, as an earlier version has kept it."""
    folder.mkdir(parents=True, mode=0o700)
    now = datetime.now(timezone.utc)
    for number in range(count):
        confirmation = Confirmation(
            confirmation_id=f"conf_{number:016x}",
            run_id=f"run_{number:016x}",
            session_id=f"{number % 1000:010x}",
            tool_name=f"tool{number % 10}",
            tool_source="directory",
            arguments={"path": f"notes/{number}.txt", "text": "What is to be written. " * 8},
            call_index=0,
            tool_call_id=f"call_{number}",
            queue_position=1,
            queue_total=1,
            asked_at=timestamp(now - timedelta(seconds=number)),
            expires_at=None,
            agent_name=f"agent{number % 20}" if number % 2 else None,
            agent_call_id=f"call_of_{number}" if number % 2 else None,
        )
        path = folder / f"{confirmation.confirmation_id}.json"
        path.write_text(json.dumps(confirmation.fields()))
        path.chmod(0o600)


def rss(server: Server) -> float:
    """MiB that its process holds."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Report:
    """Prints figures; whether a bar was missed."""

    missed = False

    def show(self, name: str, value: float, unit: str, bar: float | None = None) -> None:
        verdict = "    "
        if bar is not None:
            verdict = "ok  " if value < bar else "MISS"
            self.missed |= value >= bar
        limit = "" if bar is None else f" (bar {bar:.0f})"
        print(f"  {verdict} {name}: {value:.1f} {unit}{limit}", flush=True)


async def listing_ms(server: Server, **params: Any) -> float:
    begin = time.perf_counter()
    assert await listed(server, **params)
    return (time.perf_counter() - begin) * 1e3


def taken_from(place: Path) -> float:
    """The moment that the tool has written."""
    began = float(place.read_text())
    place.unlink()
    return began


async def start_ms(asking: Server, deciding: Server, place: Path) -> float:
    """The time from a decision to the start of the tool."""
    session_id = await asking.new_session(
        tool_settings={"tools": ["begin"], "execution_policy": "always_confirm"}
    )
    question: dict[str, Any] = {}
    decided = 0.0
    message = {"message": json.dumps(str(place))}
    async for event in asking.stream(f"/chat/{session_id}/stream", message):
        if event.event == "tool_call_confirmation_required":
            question = event.data
            await asyncio.sleep(random.uniform(0.05, 0.15))
            decided = time.monotonic()
            path = f"/confirmations/{question['confirmation_id']}"
            status, body = await deciding.post(path, {"approved": True})
            assert status == 200, body
    return (taken_from(place) - decided) * 1e3


async def parked_start_ms(asking: Server, deciding: Server, place: Path) -> float:
    """The same where no process executes the run while it waits."""
    session_id = await asking.new_session(
        tool_settings={"tools": ["begin"], "execution_policy": "always_confirm"}
    )
    body = {"message": json.dumps(str(place))}
    status, run = await asking.post(f"/chat/{session_id}/runs", body)
    assert status == 202, run
    while not (await listed(asking, session_id=session_id)):  # noqa: ASYNC110 - of others
        await asyncio.sleep(0.05)
    (question,) = await listed(asking, session_id=session_id)
    await asyncio.sleep(random.uniform(0.5, 0.6))
    decided = time.monotonic()
    path = f"/confirmations/{question['confirmation_id']}"
    status, answer = await deciding.post(path, {"approved": True})
    assert status == 200, answer
    async for _ in deciding.events(f"/runs/{run['run_id']}/events"):
        pass
    return (taken_from(place) - decided) * 1e3


async def listed(server: Server, **params: Any) -> list[dict[str, Any]]:
    status, body = await server.get("/confirmations", params=params)
    assert status == 200, body
    return body["confirmations"]


class Calling(FakeOllama):
    """A model that calls the tool with what the user says."""

    def _default(self, body: dict[str, Any]) -> Any:
        said = body["messages"][-1]
        if said["role"] == "tool":
            return super()._default(body)
        call = {"name": "begin", "arguments": {"place": json.loads(said["content"])}}
        return Reply(tool_calls=[call])


async def run(count: int) -> int:
    """Measure; the exit code."""
    report = Report()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill(folder / ".mochi" / "confirmations", count)
        write_tools(folder / "tools", init=TOOL)
        ollama = await stack.enter_async_context(Calling(one_at_a_time=False))

        async def start() -> Server:
            return await stack.enter_async_context(running_server(data_dir=folder, ollama=ollama))

        one, other = await start(), await start()
        print(f"{count} open confirmations; {LISTINGS} listings each, {DECISIONS} decisions")
        report.show("first listing after a start", await listing_ms(one), "ms")
        await asyncio.sleep(2)
        report.show("second listing", await listing_ms(one), "ms", LIST_MS)
        before = rss(one)
        for name, params in FILTERS.items():
            times = [await listing_ms(one, **params) for _ in range(LISTINGS)]
            bar = LIST_MS if "limit" not in params else None
            report.show(f"{name}, median", statistics.median(times), "ms", bar)
            report.show(f"{name}, slowest", max(times), "ms")
        report.show("memory after the first listing", before, "MiB")
        report.show("growth of the memory", rss(one) - before, "MiB", GROWTH_MIB)
        await start_ms(one, one, folder / "began")
        for name, deciding in (("the same process", one), ("another process", other)):
            for kind, measure in (("", start_ms), (" of a run let go", parked_start_ms)):
                times = [await measure(one, deciding, folder / "began") for _ in range(DECISIONS)]
                text = f"decision at {name} to the start of the tool{kind}"
                report.show(f"{text}, median", statistics.median(times), "ms", START_MS)
                report.show(f"{text}, slowest", max(times), "ms", START_MS)
    return int(report.missed)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only 1,000")
    raise SystemExit(asyncio.run(run(1_000 if parser.parse_args().quick else 10_000)))


if __name__ == "__main__":
    main()
