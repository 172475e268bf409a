"""What the page does with texts that models write when they go wrong: longest tasks, lost words.

    python benchmarks/markdown.py               # an hour
    python benchmarks/markdown.py --quick       # 60 texts
    python benchmarks/markdown.py --first 37 --texts 1

Each of 2,000 texts of 100 kB, made of its number, is drawn by the modules of the page in a headless
Chromium, whole and in 25 pieces as when it arrives. Exits with 1 when a task of the main thread is
too long, something is thrown, or a word is not shown. benchmarks/README.md names the limits.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from page import CHROMIUM, ROOT, running_server
from playwright.async_api import Browser, Page, async_playwright

LENGTH = 100_000
PIECES = 25
MOST_MILLISECONDS = 100
"""CPU of the longest task of the main thread."""
MOST_SECONDS = 120
"""Until a text is drawn to its end."""

SCRIPTS = [ROOT / "tests/support" / name for name in ("noise.js", "draw.js")]
DRAW = """async (pieces) => {
  const { seen, ...others } = await draw(text, pieces);
  window.seen = seen;
  return others;
}"""


@dataclass
class Result:
    longest: list[float] = field(default_factory=list)
    """Milliseconds of each drawing."""
    failures: list[str] = field(default_factory=list)


def longest_task(trace: bytes) -> float:
    """Milliseconds of CPU of the longest task of a page's main thread."""
    events = json.loads(trace)["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    # A coarse clock of the thread may show more than has passed.
    tasks = [
        min(event.get("tdur", 0), event.get("dur", 0))
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in threads
    ]
    return max(tasks, default=0) / 1000


async def draw(browser: Browser, page: Page, pieces: int) -> tuple[dict[str, Any], float]:
    """Draw the text, and return what came of it and the longest task."""
    await browser.start_tracing(page=page, categories=["toplevel"])
    async with asyncio.timeout(MOST_SECONDS):
        drawn = await page.evaluate(DRAW, pieces)
    return drawn, longest_task(await browser.stop_tracing())


async def measure(browser: Browser, page: Page, seeds: Iterable[int], result: Result) -> None:
    for seed in seeds:
        await page.evaluate(
            "([seed, length]) => { window.text = noise(seed, length); }", [seed, LENGTH]
        )
        for pieces in (1, PIECES):
            drawn, longest = await draw(browser, page, pieces)
            lost = await page.evaluate("missing(text, seen)")
            result.longest.append(longest)
            what = f"text {seed} in {pieces:>2} pieces: {longest:.0f} ms, {drawn['plain']} plain"
            if lost or drawn["isBroken"] or longest >= MOST_MILLISECONDS:
                what += f", lost {lost[:5]}, broken {drawn['isBroken']}"
                result.failures.append(what)
                print(what, flush=True)


async def main(seeds: range) -> bool:
    result = Result()
    with tempfile.TemporaryDirectory() as folder:
        async with running_server(Path(folder)) as address, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page = await browser.new_page()
            page.on("pageerror", lambda error: result.failures.append(f"thrown: {error}"))
            await page.goto(address)
            source = "".join([await asyncio.to_thread(script.read_text) for script in SCRIPTS])
            await page.evaluate(
                f"() => {{ {source}; Object.assign(window, {{ noise, missing, draw }}); }}"
            )
            await measure(browser, page, seeds, result)
            await browser.close()
    tasks = sorted(result.longest)
    print(f"\n{len(seeds)} texts, each whole and in {PIECES} pieces")
    print(
        f"longest task: median {tasks[len(tasks) // 2]:.0f} ms,"
        f" 99 % {tasks[len(tasks) * 99 // 100]:.0f} ms,"
        f" longest {tasks[-1]:.0f} ms (bar {MOST_MILLISECONDS})"
    )
    print("\n".join([f"failures: {len(result.failures)}", *result.failures]))
    return not result.failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60 texts")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first text")
    options = parser.parse_args()
    count = 60 if options.quick else options.texts
    sys.exit(not asyncio.run(main(range(options.first, options.first + count))))
