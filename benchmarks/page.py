"""What a long answer costs the page while it arrives: frames, long tasks, time of the main thread.

    python benchmarks/page.py            # two minutes
    python benchmarks/page.py --quick

A server in test mode streams 100,000 characters of Markdown, 200 tokens a second, to the page in a
headless Chromium, which draws without a graphics card. Exits with 1 when a limit is missed.
benchmarks/README.md names the limits.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import CDPSession, Page, async_playwright

ROOT = Path(__file__).parent.parent
CHROMIUM = "/usr/bin/chromium"
TOKENS_PER_SECOND = 200
SAMPLE_SECONDS = 5.0
LEAST_FRAMES = 50
"""Frames a second, on a machine that does nothing else."""
MOST_MILLISECONDS = 500
"""Time of the main thread for a second of the stream."""
MOST_LONG_TASKS = 0.05
"""Part of the time in tasks longer than 50 ms."""

WATCH = """() => {
  const seen = { frames: 0, late: 0, long: [], worst: 0, last: performance.now() };
  window.seen = seen;
  const frame = (now) => {
    seen.frames += 1;
    seen.worst = Math.max(seen.worst, now - seen.last);
    if (now - seen.last > 20) seen.late += 1;
    seen.last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) seen.long.push(duration);
  }).observe({ type: "longtask" });
}"""
TAKE = """() => {
  const { frames, late, long, worst } = window.seen;
  Object.assign(window.seen, { frames: 0, late: 0, long: [], worst: 0 });
  const text = document.querySelector(".answer .markdown")?.textContent.length ?? 0;
  const isDone = document.querySelector(".answer[aria-busy=false] .figures") !== null;
  return { frames, late, long, worst, text, isDone };
}"""


def markdown(characters: int) -> str:
    """Text of all kinds, among it a long list, a long table and a long block of code."""
    words = (
        "the model writes a **long** answer with `code`, [links](https://example.org) and _more_"
    )
    paragraph = f"{words.capitalize()}, {words}, {words}.\n\n"
    code = "```python\n" + "".join(
        f"def function_{n}(value: int) -> str:\n    return f'{{value + {n}}} is more'\n\n"
        for n in range(15)
    )
    table = "| name | size | what |\n|---|--:|---|\n"
    row = "| a name | 12 | some **words** about it |\n"
    section = (
        "## A heading\n\n"
        + paragraph * 3
        + "".join(f"- An item, {words}\n" for _ in range(8))
        + "\n"
        + f"{code}```\n\n{table}{row * 8}\n"
        + "A formula $a^2 + b^2 = c^2$ and $$\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$$\n\n"
    )
    functions = code.removeprefix("```python\n")
    long = (
        f"```python\n{functions * 10}```\n\n"
        f"{table}{row * 150}\n" + f"- An item, {words}\n" * 80 + "\n"
    )
    parts, length = [], 0
    while length < characters:
        part = long if len(parts) == 3 else section
        parts.append(part)
        length += len(part)
    return "".join(parts)[:characters]


@asynccontextmanager
async def running_server(folder: Path, **settings: str) -> AsyncIterator[str]:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MOCHI_")},
        "MOCHI_ENVIRONMENT": "test",
        "MOCHI_DATA_DIR": str(folder),
        "MOCHI_TEST_WORDS_PER_SECOND": str(TOKENS_PER_SECOND),
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mochi_server", "--port", "0"),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode():
            if found := re.search(r"listens on (http://\S+)", line):
                yield found[1]
                break
        else:
            raise SystemExit("The server has not started.")
    finally:
        process.terminate()
        await process.wait()


async def figures(client: CDPSession) -> dict[str, float]:
    """What the main thread of the page has used so far, in seconds of CPU."""
    metrics = (await client.send("Performance.getMetrics"))["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


async def measure(page: Page, idle: Page, client: CDPSession) -> list[dict[str, Any]]:
    """Samples of some seconds each, until the answer is complete."""
    samples: list[dict[str, Any]] = []
    await page.evaluate(WATCH)
    await idle.evaluate(WATCH)
    before = await figures(client)
    while not samples or not samples[-1]["isDone"]:
        await asyncio.sleep(SAMPLE_SECONDS)
        sample, now = await page.evaluate(TAKE), await figures(client)
        seconds = now["Timestamp"] - before["Timestamp"]
        sample["idle"] = (await idle.evaluate(TAKE))["frames"] / seconds
        for name in ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration"):
            sample[name] = 1000 * (now[name] - before[name]) / seconds
        sample["fps"] = sample["frames"] / seconds
        sample["longPart"] = sum(sample["long"]) / 1000 / seconds
        samples.append(sample)
        before = now
        print(
            f"{sample['text']:>9,} {sample['fps']:>6.1f} {sample['idle']:>6.1f}"
            f" {sample['worst']:>7.0f}"
            f" {len(sample['long']):>5} {max(sample['long'], default=0):>7.0f}"
            f" {sample['TaskDuration']:>6.0f} {sample['ScriptDuration']:>7.0f}"
            f" {sample['LayoutDuration']:>7.0f} {sample['RecalcStyleDuration']:>6.0f}",
            flush=True,
        )
    return samples


async def main(characters: int, profile: Path | None) -> bool:
    script = json.dumps({"messages": [{"text_message": {"text": markdown(characters)}}]})
    message = f"<|instruction_start|>{script}<|instruction_end|>"
    with tempfile.TemporaryDirectory() as folder:
        async with running_server(Path(folder)) as address, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page = await browser.new_page()
            await page.goto(address)
            idle = await browser.new_page()
            await idle.goto(address)
            client = await page.context.new_cdp_session(page)
            await client.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
            await client.send("Performance.enable")
            box = page.get_by_role("textbox", name="Write a message")
            await box.fill(message)
            await page.get_by_role("button", name="Send", exact=True).click()
            await page.locator(".answer .markdown").first.wait_for()
            if profile:
                await client.send("Profiler.enable")
                await client.send("Profiler.start")
            print("characters    fps   idle worst/ms  long  longest  task  script  layout  style")
            print("                     (frames/s)           (ms)   (the others: ms a second)")
            samples = await measure(page, idle, client)
            if profile:
                result = await client.send("Profiler.stop")
                await asyncio.to_thread(profile.write_text, json.dumps(result["profile"]))
            await browser.close()
    late = samples[-3:-1] or samples  # the last one has the end of the stream
    most = max(sample["TaskDuration"] for sample in late)
    long = sum(sample["longPart"] for sample in samples) / len(samples)
    fps = sum(sample["fps"] for sample in samples[:-1]) / max(len(samples) - 1, 1)
    idle_fps = sum(sample["idle"] for sample in samples[:-1]) / max(len(samples) - 1, 1)
    print(f"\nframes a second: {fps:.1f} (bar {LEAST_FRAMES}); of an idle page {idle_fps:.1f}")
    print(f"main thread at the end: {most:.0f} ms a second (bar {MOST_MILLISECONDS})")
    print(f"in tasks over 50 ms: {100 * long:.1f} % (bar {100 * MOST_LONG_TASKS:.0f})")
    return fps >= LEAST_FRAMES and most <= MOST_MILLISECONDS and long <= MOST_LONG_TASKS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30,000 characters")
    parser.add_argument("--profile", type=Path, help="write a CPU profile for DevTools")
    options = parser.parse_args()
    sys.exit(not asyncio.run(main(30_000 if options.quick else 100_000, options.profile)))
