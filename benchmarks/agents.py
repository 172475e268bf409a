"""What 50 agents with ten tools each cost: found cold, and listed warm, by a real server.

``python benchmarks/agents.py [--quick]``. Exits 1 when a bar is missed. Tools run in processes, as
by default; bytecode is there, as after the first start; nothing else runs, and no Ollama answers.
"""

from __future__ import annotations

import argparse
import compileall
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from startup import NOBODY
from streaming_peers.processes import free_port

AGENTS, TOOLS = 50, 10
COLD_BAR_SECONDS, WARM_BAR_MS = 1.0, 10.0
MAX_SECONDS = 60.0
ROOT = Path(__file__).parent.parent
PACKAGES = ("mochi_server", "mochi_project", "chat", "sessions_app", "tools_app", "agents_app")
PACKAGES += ("prompts_app",)

SKILL = """---
description: Works on {name}, and knows all that there is to know about it.
---

You are {name}. {body}
"""

TOOL = '''

def tool_{number}(
    path: str, pattern: str = "*", limit: int = 100, names: list[str] | None = None
) -> str:
    """Look for something in a folder.

    Args:
        path: Where to look.
        pattern: What to look for.
        limit: How many results there may be.
        names: Only these.
    """
    return f"{{path}} {{pattern}} {{limit}} {{names}}"
'''


def write_agents(folder: Path) -> None:
    """Half of them of three files, half of them with a folder of tools."""
    names = [f"tool_{number}" for number in range(TOOLS)]
    functions = "".join(TOOL.format(number=number) for number in range(TOOLS))
    for number in range(AGENTS):
        place = folder / f"agent{number}"
        place.mkdir(parents=True)
        skill = SKILL.format(name=place.name, body="You take care. " * 100)
        (place / "SKILL.md").write_text(skill, "utf-8")
        if number % 2:
            (place / "tools").mkdir()
            code = f"{functions}\n\n__all__ = {names!r}\n"
            (place / "tools" / "__init__.py").write_text(code, "utf-8")
        else:
            (place / f"{place.name}.py").write_text(functions, "utf-8")
            code = f"from .{place.name} import *\n\n__all__ = {names!r}\n"
            (place / "__init__.py").write_text(code, "utf-8")


class Link:
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_SECONDS)

    def ask(self, path: str, method: str = "GET") -> tuple[float, Any]:
        """Seconds to the end of the answer, and its JSON."""
        begin = time.perf_counter()
        self._http.request(method, f"/api/v1{path}")
        response = self._http.getresponse()
        data = response.read()
        taken = time.perf_counter() - begin
        if response.status != 200:
            raise SystemExit(f"{method} {path}: {response.status} {data[:500]!r}")
        return taken, json.loads(data)

    def wait(self, child: subprocess.Popen[bytes]) -> None:
        """Until the server answers."""
        end = time.monotonic() + MAX_SECONDS
        while not self._answers():
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit("the server did not start")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.ask("/health")
        except (OSError, http.client.HTTPException):
            self._http.close()
            return False
        return True


@contextmanager
def served(folder: Path) -> Iterator[Link]:
    """A server on this folder."""
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")}
    environment = {**kept, "MOCHI_DATA_DIR": str(folder), "MOCHI_OLLAMA_HOST": NOBODY}
    command = [sys.executable, "-m", "mochi_server", "--port", str(port)]
    child = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    link = Link(port)
    try:
        link.wait(child)
        yield link
    finally:
        child.terminate()
        child.wait(MAX_SECONDS)


def check(found: Any) -> None:
    """Every agent with every tool, else there is nothing to measure."""
    agents = found["agents"].values()
    if len(agents) != AGENTS or not all(each["tool_count"] == TOOLS for each in agents):
        raise SystemExit(f"the agents were not found: {found['problems'][:3]}")


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


def measure(*, quick: bool) -> bool:
    report = Report()
    cold: list[float] = []
    warm: list[float] = []
    idle: list[float] = []
    changed: list[float] = []
    reloaded: list[float] = []
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        write_agents(folder / "agents")
        print(f"{AGENTS} agents of {TOOLS} tools:")
        for _ in range(3 if quick else 7):
            with served(folder) as link:
                seconds, found = link.ask("/agents")
                check(found)
                cold.append(seconds)
                for _ in range(20 if quick else 100):
                    warm.append(link.ask("/agents")[0] * 1e3)
                    idle.append(link.ask("/health")[0] * 1e3)
                changed.append(touched(link, folder) * 1e3)
                reloaded.append(link.ask("/agents/reload", "POST")[0])
    report.line("found cold, by the first GET /agents, median", middle(cold), "s", COLD_BAR_SECONDS)
    report.line("  slowest", max(cold), "s")
    report.line("GET /agents warm, median", middle(warm), "ms", WARM_BAR_MS)
    report.line("  99th percentile", sorted(warm)[int(len(warm) * 0.99)], "ms")
    report.line("  GET /health, for comparison, median", middle(idle), "ms")
    report.line("  cold by warm", middle(cold) * 1e3 / middle(warm), "times")
    report.line("GET /agents after a change of one agent's code, median", middle(changed), "ms")
    report.line("POST /agents/reload, median", middle(reloaded), "s")
    return report.missed


def touched(link: Link, folder: Path) -> float:
    """Seconds of the list when one agent's code has just changed."""
    with (folder / "agents" / "agent0" / "agent0.py").open("a", encoding="utf-8") as file:
        file.write("# once more\n")
    seconds, found = link.ask("/agents")
    check(found)
    return seconds


def middle(values: list[float]) -> float:
    return statistics.median(values)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer starts")
    return 1 if measure(quick=parser.parse_args().quick) else 0


if __name__ == "__main__":
    raise SystemExit(main())
