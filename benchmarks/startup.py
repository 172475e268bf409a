"""How long a start takes: from the command to the first 200 of ``/health``.

``python benchmarks/startup.py [--quick]``. Exits 1 when the median misses the bar. Bytecode is
compiled before, as it is after the first start; nothing else runs, and no Ollama answers.
"""

from __future__ import annotations

import argparse
import compileall
import http.client
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR_SECONDS = 1.5
MAX_SECONDS = 30.0
ROOT = Path(__file__).parent.parent
PACKAGES = ("mochi_server", "mochi_project", "chat", "sessions_app", "tools_app", "agents_app")
PACKAGES += ("prompts_app",)
NOBODY = "http://127.0.0.1:9"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether ``/health`` says 200."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_SECONDS)
    try:
        link.request("GET", "/api/v1/health")
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()


def start_once(folder: Path) -> float:
    """Seconds of one start."""
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")},
        "MOCHI_DATA_DIR": str(folder),
        "MOCHI_OLLAMA_HOST": NOBODY,
    }
    command = [sys.executable, "-m", "mochi_server", "--port", str(port)]
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        while not answers(port):
            if child.poll() is not None:
                raise SystemExit(f"the server did not start:\n{child.stderr.read().decode()}")
            if time.perf_counter() - begin > MAX_SECONDS:
                raise SystemExit("the server does not answer")
            time.sleep(0.005)
        return time.perf_counter() - begin
    finally:
        child.terminate()
        child.communicate(timeout=MAX_SECONDS)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three starts instead of nine")
    count = 3 if parser.parse_args().quick else 9
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        start_once(Path(name))  # the disk's cache, and the bytecode of what is installed
        seconds = [start_once(Path(name)) for _ in range(count)]
    middle = statistics.median(seconds)
    met = middle < BAR_SECONDS
    print(f"start to the first /health, {count} times: min {min(seconds):.2f} s")
    print(f"  {'ok  ' if met else 'MISS'} median under {BAR_SECONDS:g} s: {middle:.2f} s")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
