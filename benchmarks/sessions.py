"""What sessions cost: the list of 10,000 of them, and a turn on one of 10,000 messages.

``python benchmarks/sessions.py [--quick]``. Exits 1 when a bar is missed. Figures of one run on one
machine: compare the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson

from mochi_server.core.aio import in_thread
from mochi_server.protocol.messages import AssistantMessage, UserMessage, now
from mochi_server.sessions import ChatSession, SessionManager
from mochi_server.sessions.codec import assemble

BAR_FIRST, BAR_WARM, BAR_TURN, BAR_HELD = 500.0, 50.0, 4.0, 10.0
WORDS = "The quick brown fox jumps over the lazy dog. "


def file_of(session: ChatSession) -> bytes:
    """The whole content of the session's file."""
    return b"".join(assemble(session.document()))


def message(number: int) -> dict[str, object]:
    """A stored message of about 500 bytes."""
    role = "user" if number % 2 == 0 else "assistant"
    content = f"Message {number}: {WORDS * 8}"
    common = {"role": role, "content": content}
    tail = {"message_id": f"{number:010x}", "timestamp": now()}
    return {**common, **({"model": "bench:1b"} if role == "assistant" else {}), **tail}


async def fill(manager: SessionManager, folder: Path, count: int) -> None:
    """Sessions of four messages, as the server itself writes them, without its flushing."""
    pattern = await manager.create("bench:1b", system_prompt="You help.", session_id="pattern")
    pattern.append(UserMessage(content=WORDS * 3), AssistantMessage(content=WORDS * 8))
    pattern.append(UserMessage(content=WORDS), AssistantMessage(content=WORDS * 8))

    def write_all() -> None:
        for number in range(count):
            pattern.metadata.session_id = f"{number:010x}"
            pattern.metadata.updated_at = now()
            (folder / f"{number:010x}.json").write_bytes(file_of(pattern))

    await in_thread(write_all)


class Ticker:
    """The longest time that the event loop was held, in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Ticker:
        self.task = asyncio.get_running_loop().create_task(self._tick())
        await asyncio.sleep(0.01)
        self.longest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()

    async def _tick(self) -> None:
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, (time.perf_counter() - due) * 1000)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1000


async def listing(count: int, rounds: int) -> dict[str, float]:
    """Milliseconds of each kind of list, medians but for the first; the loop's longest hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await fill(SessionManager(sessions_dir=folder), folder, count)
        first = [await timed(SessionManager(sessions_dir=folder).list_json) for _ in range(3)]
        manager = SessionManager(sessions_dir=folder)
        figures: dict[str, list[float]] = {"warm": [], "own save": [], "foreign": [], "sweep": []}
        async with Ticker() as ticker:
            await manager.list_json()
            for number in range(rounds):
                figures["warm"].append(await timed(manager.list_json))
                async with manager.edit("0000000001") as session:
                    session.append(UserMessage(content=str(number)))
                figures["own save"].append(await timed(manager.list_json))
                other = SessionManager(sessions_dir=folder)
                async with other.edit("0000000002") as session:
                    session.append(UserMessage(content=str(number)))
                figures["foreign"].append(await timed(manager.list_json))
            eager = SessionManager(sessions_dir=folder, sweep_seconds=0)
            await eager.list_json()
            for _ in range(rounds):
                figures["sweep"].append(await timed(eager.list_json))
        medians = {key: statistics.median(values) for key, values in figures.items()}
        return {"first": statistics.median(first), **medians, "held": ticker.longest}


def write_once(path: Path, content: object) -> None:
    """The yardstick: the whole file by orjson, flushed."""
    with path.open("wb") as file:
        file.write(orjson.dumps(content))
        os.fsync(file.fileno())


async def turn(manager: SessionManager, number: int) -> None:
    """What the chat engine asks of the storage in one turn."""
    await manager.get("long")
    async with manager.edit("long") as session:
        session.append(UserMessage(content=f"Question {number}"))
    async with manager.edit("long") as session:
        session.append(AssistantMessage(content=f"Answer {number}", model="bench:1b"))


async def turns(count: int, rounds: int) -> dict[str, float]:
    """Milliseconds of a turn and of the yardstick, interleaved; the loop's longest hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manager = SessionManager(sessions_dir=folder)
        session = await manager.create("bench:1b", session_id="long")
        content = orjson.loads(file_of(session))
        content["messages"] = [message(number) for number in range(count)]
        (folder / "long.json").write_bytes(orjson.dumps(content))
        async with manager.edit("long") as long:
            long.append(UserMessage(content="into our own layout"))
        cold: list[float] = []
        warm: list[float] = []
        once: list[float] = []
        async with Ticker() as ticker:
            for number in range(rounds):
                once.append(await timed(lambda: in_thread(write_once, folder / "raw", content)))
                warm.append(await timed(lambda: turn(manager, number)))  # noqa: B023 - run at once
                fresh = SessionManager(sessions_dir=folder)
                cold.append(await timed(lambda: turn(fresh, number)))  # noqa: B023 - run at once
                await manager.get("long")
        return {
            "once": statistics.median(once),
            "warm": statistics.median(warm),
            "cold": statistics.median(cold),
            "megabytes": (folder / "long.json").stat().st_size / 1e6,
            "held": ticker.longest,
        }


def verdict(name: str, value: float, bar: float, unit: str) -> bool:
    """Print one line; whether the bar is held."""
    held = value < bar
    print(f"  {name:<46} {value:8.2f} {unit:<3} bar {bar:g} {unit} {'ok' if held else 'MISSED'}")
    return held


def figure(name: str, value: float, unit: str) -> None:
    """Print one line that no bar applies to."""
    print(f"  {name:<46} {value:8.2f} {unit}")


def holds(longest: float, idle: float) -> bool:
    """The bar of the event loop; no verdict where even an idle loop is held up."""
    if idle < BAR_HELD / 2:
        return verdict("event loop held, longest", longest, BAR_HELD, "ms")
    figure(f"event loop held (an idle one: {idle:.1f}, no verdict)", longest, "ms")
    return True


async def idle_hold() -> float:
    """How long this machine holds up a loop that does nothing."""
    async with Ticker() as ticker:
        await asyncio.sleep(1)
    return ticker.longest


async def main(*, quick: bool) -> bool:
    """Run all and print; whether every bar is held."""
    rounds = 5 if quick else 15
    gc.collect()
    gc.freeze()  # as the server does after its imports: a full collection would stop the loop
    idle = await idle_hold()
    print("List of 10,000 sessions")
    figures = await listing(10_000, rounds)
    good = verdict("first after start", figures["first"], BAR_FIRST, "ms")
    good &= verdict("warm, median", figures["warm"], BAR_WARM, "ms")
    good &= verdict("after a save of our own, median", figures["own save"], BAR_WARM, "ms")
    figure("after a change of another process, median", figures["foreign"], "ms")
    figure("with a look at every file, median", figures["sweep"], "ms")
    good &= holds(figures["held"], idle)
    figures = await turns(10_000, rounds)
    print(f"A turn on 10,000 messages ({figures['megabytes']:.1f} MB): get and two edits")
    figure("writing the file once with orjson and fsync", figures["once"], "ms")
    figure("a turn", figures["warm"], "ms")
    good &= verdict("a turn, times that", figures["warm"] / figures["once"], BAR_TURN, "x")
    figure("the first turn after a start", figures["cold"], "ms")
    figure("the first turn, times that", figures["cold"] / figures["once"], "x")
    good &= holds(figures["held"], idle)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Peak memory of this process: {peak:.0f} MiB")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    sys.exit(0 if asyncio.run(main(quick=parser.parse_args().quick)) else 1)
