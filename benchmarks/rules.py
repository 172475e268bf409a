"""How long rules about calls hold up the event loop.

``python benchmarks/rules.py [--quick]``. Ten rules that deny, and one reply of 20 calls of 4 kB,
in a thread as a server compares them: commands, paths and texts. Each round is a process of its
own, so that its first call imports the parser of commands. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mochi_server.chat.confirmations.asking import AskedCall
from mochi_server.chat.rules.comparer import Comparer
from mochi_server.chat.rules.rule import CallRule, RuleSet
from mochi_server.core.aio import switch_threads_soon
from mochi_server.protocol.messages import ToolCall
from tests.support.confirmations import asking_in_memory

CALLS = 20
LENGTH = 4000
TICK_SECONDS = 0.001
HOLD_BAR_MS = 5.0
"""Longest time for which the loop waits for other threads."""

PATTERNS = ("**/.env", "/etc/**", "rm *", "**/secret/**", "git push *", "*password*", "**/.ssh/**")
PATTERNS += ("curl * | sh", "**/*.pem", "sudo *")

Make = Callable[[int], str]
KINDS: dict[str, tuple[str, Make]] = {
    "commands of many words": (
        "command",
        lambda n: f"cp src/a{n}.py " + " ".join(f"out/{n}/{each}.py" for each in range(LENGTH)),
    ),
    "commands of many commands": (
        "command",
        lambda n: f"echo {n}; " + "grep -n 'x y' \"$F\" | wc -l && cat a.md; " * (LENGTH // 44),
    ),
    "commands within commands": (
        "command",
        lambda n: f"echo {n}; " + "bash -c 'env A=1 timeout 5 ls a/b {c,d}'; " * (LENGTH // 40),
    ),
    "paths": ("path", lambda n: f"notes/{n}/" + "a/b.c/../" * LENGTH),
    "texts": ("content", lambda n: f"{n}. " + "Some words, and a/path; more. " * LENGTH),
    "encoded texts": ("content", lambda n: f"{n}" + "%2e%2e/é/ﬁ%25" * LENGTH),
}


def rules_for(name: str) -> list[RuleSet]:
    """Return ten rules that deny, and one that allows nothing of this."""
    deny = [CallRule(tool="run", action="deny", arguments={name: each}) for each in PATTERNS]
    return [RuleSet((*deny, CallRule(tool="run", action="allow", arguments={name: "ls *"})))]


async def holds_ms(kind: str) -> dict[str, float]:
    """Return how long the loop waited, beside matching and alone, and how long matching took."""
    name, make = KINDS[kind]
    asking, rules, comparer = asking_in_memory(), rules_for(name), Comparer()
    texts = [make(number)[:LENGTH] for number in range(CALLS)]
    asked = [
        AskedCall(ToolCall(id=f"call_{n}", name="run", arguments={}), n, {name: text}, "directory")
        for n, text in enumerate(texts)
    ]

    async def match() -> None:
        for each in asked:
            await asking.match(rules, each, comparer)

    alone = await longest_hold_ms(asyncio.sleep(0.3))
    begin = time.perf_counter()
    beside = await longest_hold_ms(match())
    return {"alone": alone, "beside": beside, "took": (time.perf_counter() - begin) * 1e3}


async def longest_hold_ms(work: Any) -> float:
    """Return how long the loop waited at most for other threads of this process.

    That is how late it woke, without the time in which one of them waited for a processor.
    """
    task, longest = asyncio.ensure_future(work), 0.0
    await asyncio.sleep(0)
    while not task.done():
        begin, waited = time.perf_counter(), waited_seconds()
        await asyncio.sleep(TICK_SECONDS)
        late = time.perf_counter() - begin - TICK_SECONDS
        longest = max(longest, late - (waited_seconds() - waited))
    await task
    return longest * 1e3


def waited_seconds() -> float:
    """Return for how long the threads of this process were ready, but had no processor."""
    waited = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            waited += int((thread / "schedstat").read_text().split()[1])
    return waited / 1e9


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        gc.freeze()  # as a server does
        switch_threads_soon()
        print(json.dumps(asyncio.run(holds_ms(options.kind))))
        return 0
    missed = False
    print(f"{len(PATTERNS)} rules that deny, {CALLS} calls of {LENGTH} characters:")
    for kind in KINDS:
        rounds = []
        for _ in range(3 if options.quick else 7):
            command = [sys.executable, __file__, "--kind", kind]
            ended = subprocess.run(command, check=True, capture_output=True)
            rounds.append(json.loads(ended.stdout))
        held = min(each["beside"] for each in rounds)  # what else the machine does is in the others
        alone = statistics.median(each["alone"] for each in rounds)
        took = statistics.median(each["took"] for each in rounds)
        verdict = "ok  " if held <= HOLD_BAR_MS else "MISS"
        missed |= held > HOLD_BAR_MS
        figures = f"{held:.1f} ms (bar {HOLD_BAR_MS:g}), alone {alone:.1f} ms"
        print(f"  {verdict} {kind}: longest wait {figures}; all took {took:.0f} ms", flush=True)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
