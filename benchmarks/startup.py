"""What a start costs: ``python benchmarks/startup.py [--base DIR] [--quick]``.

CPU seconds (user and system, of the process and of children that have ended) and memory, of this
checkout and, with ``--base``, of another one that has a ``.venv`` of its own, in turns. Bytecode is
compiled before, as it is after the first start, and no Ollama answers.

Bars with ``--base`` are ratios to the start of the other checkout. Without it they are the same as
seconds on the machine where the start took 1.8 s before it was halved.
"""

from __future__ import annotations

import argparse
import compileall
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming_peers.processes import free_port

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("mochi_server", "mochi_project", "chat", "sessions_app", "tools_app", "agents_app")
PACKAGES += ("prompts_app",)
NOBODY = "http://127.0.0.1:9"
MAX_SECONDS = 120.0
WORKERS = 4

BEFORE = 1.8
"""CPU seconds of the start on the machine of the bars, before it was halved."""
BARS = {
    "start": 1.1,
    "--help": 0.4,
    "tools run": 0.4,
    "doctor": 0.4,
    "ask": 0.4,
    "first request": 0.15,
}
"""Most CPU seconds where the start took ``BEFORE``."""
MOST_MEMORY = 70 / 88
"""Of the memory of an idle server before."""
MOST_WORKERS = 1.5
"""CPU of the start of several workers, by that of one."""

FIRST_REQUESTS: dict[str, tuple[str, object]] = {
    "sessions": ("/api/v1/sessions", None),
    "chat": ("/api/v1/chat", {"model": "nothing", "message": "Hello"}),
    "OpenAI": ("/v1/chat/completions", {"model": "x", "messages": []}),
    "Responses": ("/v1/responses", {"model": "x", "input": "Hello"}),
    "Anthropic": ("/v1/messages", {"model": "x", "max_tokens": 1, "messages": []}),
    "Ollama": ("/ollama/api/chat", {"model": "x", "messages": []}),
    "AG-UI": ("/api/v1/agui", {}),
    "AI SDK": ("/api/v1/ui/chat", {}),
}
"""A path of each part that is imported late; the answer may be an error."""


class Server:
    """A server that answers."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process
        self.start_cpu = 0.0

    def cpu(self) -> float:
        """Seconds that it and its workers have computed."""
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in family(self.process.pid))

    def memory(self) -> float:
        """MB that are resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def ask(self, path: str, body: object = None) -> int:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS)
        try:
            if body is None:
                link.request("GET", path)
            else:
                headers = {"Content-Type": "application/json"}
                link.request("POST", path, json.dumps(body), headers)
            answer = link.getresponse()
            answer.read()
            return answer.status
        finally:
            link.close()


def answers(port: int, path: str = "/api/v1/health") -> bool:
    """Whether it says 200."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_SECONDS)
    try:
        link.request("GET", path)
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()


def family(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def command(checkout: Path) -> str:
    programs = Path(sys.executable).parent if checkout == ROOT else checkout / ".venv" / "bin"
    return str(programs / "mochi-server")


def environment() -> dict[str, str]:
    left_out = ("MOCHI_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "MOCHI_OLLAMA_HOST": NOBODY}


@contextmanager
def server(checkout: Path, *options: str, workers: int = 1) -> Iterator[Server]:
    """Start a server on an empty folder; its CPU up to the first answer is ``start_cpu``."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        port = free_port()
        words = ["--port", str(port), "--data-dir", folder, "--workers", str(workers), *options]
        process = subprocess.Popen(
            [command(checkout), *words], cwd=folder, env=environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started = Server(port, process)
        try:
            begin = time.perf_counter()
            while not answers(port) or (workers > 1 and not all_started(Path(folder), workers)):
                if process.poll() is not None or time.perf_counter() - begin > MAX_SECONDS:
                    raise SystemExit("the server did not start")
                time.sleep(0.005)
            started.start_cpu = started.cpu()
            yield started
        finally:
            process.terminate()
            process.wait(MAX_SECONDS)


def all_started(folder: Path, workers: int) -> bool:
    """Return whether each worker has entered itself, as it does when it has started."""
    return len([*(folder / ".mochi" / "processes").glob("*")]) >= workers


def cpu_of(checkout: Path, *words: str, folder: Path) -> float:
    """Seconds that a command computes."""
    process = subprocess.Popen(
        [command(checkout), *words], cwd=folder, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


def measure(checkout: Path, folder: Path) -> dict[str, float]:
    """Return one round of all figures: CPU seconds by name, and MB as ``memory``."""
    figures: dict[str, float] = {}
    with server(checkout) as one:
        figures["start"] = one.start_cpu
        time.sleep(1)  # the lines for a person come after the first answer
        figures["memory"] = one.memory()
        for name, (path, body) in FIRST_REQUESTS.items():
            before = one.cpu()
            one.ask(path, body)
            middle = one.cpu()
            one.ask(path, body)
            figures[f"first {name}"] = (middle - before) - (one.cpu() - middle)
    with server(checkout, workers=WORKERS) as several:
        figures["workers"] = several.start_cpu
    with server(checkout, "--test") as scripted:
        address = f"http://127.0.0.1:{scripted.port}"
        figures["ask"] = cpu_of(checkout, "ask", "--server", address, "Hello", folder=folder)
    data = ("--data-dir", str(folder))
    figures["--help"] = cpu_of(checkout, "--help", folder=folder)
    call = ("tools", "run", "calculate", '{"expression": "1+1"}')
    figures["tools run"] = cpu_of(checkout, *data, *call, folder=folder)
    figures["doctor"] = cpu_of(checkout, *data, "doctor", folder=folder)
    return figures


def judge(name: str, value: float, bar: float, unit: str) -> bool:
    met = value <= bar
    print(f"  {'ok  ' if met else 'MISS'} {name}: {value:.3f} {unit} (bar {bar:.3f})")
    return met


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="checkout to compare with, with a .venv")
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.base.resolve()] if options.base else [])]
    rounds: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name) / "data"
        shutil.copytree(ROOT / "examples" / "data", folder)
        for checkout in checkouts:
            for package in PACKAGES:
                compileall.compile_dir(checkout / package, quiet=2)
            with server(checkout):
                pass  # the disk's cache, and the bytecode of what is installed
        for _ in range(3 if options.quick else 9):
            for checkout in checkouts:
                rounds[checkout].append(measure(checkout, folder))
    medians = [
        {name: statistics.median(each[name] for each in rounds[checkout]) for name in each_name}
        for checkout in checkouts
        for each_name in [rounds[checkout][0]]
    ]
    for name in medians[0]:
        print(f"{name:18}", "  ".join(f"{each[name]:8.3f}" for each in medians))
    own, base = medians[0], medians[-1]
    scale = base["start"] / BEFORE if options.base else 1.0
    results = [
        judge(name, own[name], bar * scale, "s of CPU") for name, bar in BARS.items() if name in own
    ]
    first = max(own[f"first {name}"] for name in FIRST_REQUESTS)
    results.append(judge("first request", first, BARS["first request"] * scale, "s of CPU"))
    before = base["memory"] if options.base else 88.0
    results.append(judge("memory", own["memory"], MOST_MEMORY * before, "MB"))
    results.append(judge("workers, by one", own["workers"] / own["start"], MOST_WORKERS, "times"))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
