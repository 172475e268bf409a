"""What a call of a tool costs, and what it does to the server.

``python benchmarks/tools.py [--quick]``. Exits 1 when a bar is missed. The bars are for this
machine; a registered function runs beside it, in a thread of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mochi_server.tools.base import ToolContext
from mochi_server.tools.folder.package import load_package
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.functions.registered import RegisteredFunctions
from mochi_server.tools.loading import FolderSpec, LoadedFolder, ToolLoader
from mochi_server.tools.process.loader import ProcessLoader

REGISTERED_BAR_MS = 2.0
PROCESS_BAR_MS = 10.0
START_BAR_CPU_MS = 250.0
FIFTY_BAR_SECONDS = 1.0
DELAY_BAR_MS = 50.0
TICK_SECONDS = 0.005
PARALLEL = 32
TOOLS = '''
import time

__all__ = ["empty", "empty_async", "rest", "burn"]


def empty() -> str:
    """Do nothing."""
    return ""


async def empty_async() -> str:
    """Do nothing."""
    return ""


def rest() -> str:
    """Take 50 milliseconds."""
    time.sleep(0.05)
    return ""


def burn(seconds: float) -> str:
    """Compute.

    Args:
        seconds: for how long
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return ""
'''


class Report:
    """Prints figures, and remembers whether a bar was missed."""

    def __init__(self) -> None:
        self.missed = False

    def line(self, text: str, value: float, unit: str, bar: float | None = None) -> None:
        verdict = "    "
        if bar is not None:
            verdict = "ok  " if value < bar else "MISS"
            self.missed |= value >= bar
        under = f" (bar {bar:g})" if bar is not None else ""
        print(f"  {verdict} {text}: {value:.2f} {unit}{under}", flush=True)


async def median_ms(call: Callable[[], Awaitable[object]], count: int) -> float:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


async def parallel_seconds(folder: LoadedFolder) -> float:
    begin = time.perf_counter()
    await asyncio.gather(*(folder.call("rest", {}) for _ in range(PARALLEL)))
    return time.perf_counter() - begin


async def delays_ms(during: Awaitable[object] | None, seconds: float) -> list[float]:
    """How late the loop woke, each time, while something else went on."""
    task = asyncio.ensure_future(during if during is not None else asyncio.sleep(seconds))
    late = []
    while not task.done():
        begin = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        late.append((time.perf_counter() - begin - TICK_SECONDS) * 1e3)
    await task
    return sorted(late)


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def one_folder(loader: ToolLoader, spec: FolderSpec) -> LoadedFolder:
    [folder] = await loader.load([spec])
    if folder.description.problems:
        raise SystemExit(f"the tools did not load: {folder.description.problems}")
    return folder


async def cold_start(spec: FolderSpec, report: Report, count: int) -> None:
    wall, cpu, blocked = [], [], []
    for _ in range(count):
        loader = ProcessLoader()
        before, begin = children_cpu(), time.perf_counter()
        late = await delays_ms(one_folder(loader, spec), 0)
        wall.append((time.perf_counter() - begin) * 1e3)
        blocked.append(late[-1])
        await loader.aclose()
        cpu.append((children_cpu() - before) * 1e3)
    report.line("cold start of a process, CPU", statistics.median(cpu), "ms", START_BAR_CPU_MS)
    report.line("  from load() to the description", statistics.median(wall), "ms")
    report.line("  longest delay of the server's loop meanwhile", max(blocked), "ms")


async def fifty(root: Path, report: Report) -> None:
    specs = []
    for number in range(50):
        folder = root / f"agent{number}"
        folder.mkdir()
        (folder / "__init__.py").write_text(TOOLS, encoding="utf-8")
        specs.append(FolderSpec(path=folder))
    loader = ProcessLoader()
    begin = time.perf_counter()
    loaded = await loader.load(specs)
    report.line("50 folders, cold", time.perf_counter() - begin, "s", FIFTY_BAR_SECONDS)
    assert all(len(folder.description.tools) == 4 for folder in loaded)
    await loader.aclose()


async def calls(spec: FolderSpec, report: Report, count: int) -> None:
    found: dict[str, float] = {}
    loader = ProcessLoader()
    package = load_package(spec, generation="bench")
    folders: dict[str, LoadedFolder] = {
        "registered": RegisteredFunctions(package.functions),
        "process": await one_folder(loader, spec),
    }
    bars = {"registered": REGISTERED_BAR_MS, "process": PROCESS_BAR_MS}
    for name, folder in folders.items():
        await median_ms(lambda f=folder: f.call("empty", {}), 20)
        found[name] = await median_ms(lambda f=folder: f.call("empty", {}), count)
        report.line(f"empty call, {name}", found[name], "ms", bars[name])
        taken = await median_ms(lambda f=folder: f.call("empty_async", {}), count)
        report.line(f"  the same, async, {name}", taken, "ms")
        report.line(f"  one call of a model, {name}", await whole_call_ms(folder, count), "ms")
    report.line("  process by registered", found["process"] / found["registered"], "times")
    for name, folder in folders.items():
        report.line(
            f"{PARALLEL} calls of 50 ms at once, {name}", await parallel_seconds(folder), "s"
        )
        report.line("  once more", await parallel_seconds(folder), "s")
        await folder.aclose()
    await loader.aclose()


async def whole_call_ms(folder: LoadedFolder, count: int) -> float:
    """The arguments checked and the function called, as a turn does."""
    details = {each.name: each for each in folder.description.tools}["burn"]
    tool = FunctionTool(details, folder, source="directory", default_timeout=10)
    context = ToolContext(session_id="bench", tool_call_id="call")

    async def call() -> None:
        arguments = await tool.validate({"seconds": 0})
        async for _ in tool.run(arguments, context):
            pass

    return await median_ms(call, count)


async def delay(spec: FolderSpec, report: Report, seconds: float) -> None:
    quiet = await delays_ms(None, seconds)
    report.line(
        "delay of the loop, 99th percentile, nothing running", percentile(quiet, 0.99), "ms"
    )
    loader = ProcessLoader()
    folder = await one_folder(loader, spec)
    late = await delays_ms(folder.call("burn", {"seconds": seconds}), seconds)
    report.line("  one tool computes", percentile(late, 0.99), "ms", DELAY_BAR_MS)
    report.line("    median", percentile(late, 0.5), "ms")
    await loader.aclose()


async def measure(*, quick: bool) -> bool:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        root = Path(name)
        (root / "tools").mkdir()
        (root / "tools" / "__init__.py").write_text(TOOLS, encoding="utf-8")
        spec = FolderSpec(path=root / "tools")
        print("tools:")
        await cold_start(spec, report, 3 if quick else 9)
        await fifty(root, report)
        await calls(spec, report, 100 if quick else 1000)
        await delay(spec, report, 1 if quick else 4)
    return report.missed


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    return 1 if asyncio.run(measure(quick=parser.parse_args().quick)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
