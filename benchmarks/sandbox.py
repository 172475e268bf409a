"""How long a sandbox takes to start, beside the bare process: medians, side by side."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mochi_server.sandbox import SandboxSpec, make_sandbox
from mochi_server.sandbox.process import ProcessSandbox

COMMANDS = {
    "true": ["true"],
    "python3 -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
}


def seconds_of(argv, env=None) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    sandbox = make_sandbox("bubblewrap")
    if (problem := asyncio.run(sandbox.problem())) is not None:
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as folder:
        spec = SandboxSpec.of_workspace(Path(folder))
        for name, argv in COMMANDS.items():
            made = {
                "bare": (argv, None),
                "process": tuple_of(ProcessSandbox().command(argv, spec)),
                "bubblewrap": tuple_of(sandbox.command(argv, spec)),
            }
            times: dict[str, list[float]] = {way: [] for way in made}
            for _ in range(rounds):  # in turn, so that other load is the same for all
                for way, (words, env) in made.items():
                    times[way].append(seconds_of(words, env))
            bare = statistics.median(times["bare"])
            for way, each in times.items():
                median, worst = statistics.median(each), sorted(each)[int(len(each) * 0.95)]
                print(
                    f"{name:16} {way:11} median {median * 1000:6.1f} ms  "
                    f"(+{(median - bare) * 1000:5.1f})  95 % {worst * 1000:6.1f} ms"
                )


def tuple_of(command):
    return command.argv, command.env


if __name__ == "__main__":
    main()
