"""How the CPU time of what people and models send grows with its length: never faster than it.

``python benchmarks/long_inputs.py [--quick]`` takes about half a minute. Each row has two inputs of
the same kind, one ten times as long as the other, in turn in one process. Exits 1 when a bar is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mochi_server.server.initialise import initialise
from mochi_server.sessions.attachments import AttachmentReader
from mochi_server.testmode.samples import words_of
from mochi_server.tools.folder.package import load_package
from mochi_server.tools.folder.snapshot import MAX_ENTRIES, check_folder
from mochi_server.tools.loading import FolderSpec
from mochi_server.tools.mcp.config.jsonc import CommentedJson

LONGER = 10
BAR = 3.0 * LONGER
"""CPU of the longer input, as a multiple of that of the shorter one; 100 would be quadratic."""
BOUND_BAR = 2.0
"""The same where the work is bounded, however much there is."""
REFUSED_BAR = 10.0
"""CPU of what is refused, as a multiple of that of the longest expression that has a result."""
KINDS = ("emails", "numbers", "links", "dates")
PIECES = ("a", "1", "a.", "1,", "a@", "a@a.", "http://", "1e", "-", "@.")
CONFIGURATION_PIECES = ('"\\', "/*", ", ", ",", '"', "//")
CHARACTERS = 5_000
"""Of the shorter texts."""
CALLS = 1_000
REFUSED = (
    "9**9**9",
    "factorial(500)**500",
    "factorial(100000)",
    "1e308 * 10",
    "round(1, -1000000000)",
    "(" * 250 + ")" * 250,
    "-" * 499 + "1",
)
LONGEST = "+".join(["1"] * 250)

Work = Callable[[], object]


def cpu(work: Work, rounds: int) -> float:
    """Return the milliseconds of CPU time of the fastest of so many rounds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times) * 1e3


class Report:
    """Prints rows; whether a bar was missed."""

    missed = False

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def compare(self, name: str, work: Work, base: Work, bar: float) -> None:
        """Compare the CPU time of some work with that of other work."""
        short, long = cpu(base, self._rounds), cpu(work, self._rounds)
        ratio = long / max(short, 0.01)
        self.missed |= ratio > bar
        verdict = "ok  " if ratio <= bar else "MISS"
        figures = f"{long:.2f} ms, beside {short:.2f} ms: {ratio:.1f}"
        print(f"  {verdict} {name}: {figures} (bar {bar:.0f})", flush=True)


def history(count: int) -> Work:
    """Read a history of so many calls whose results come in the reverse order."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mochi_project.settings")
    from chat.wires.ollama.history import read_history  # noqa: PLC0415 - needs the settings
    from chat.wires.ollama.schemas import OllamaMessage  # noqa: PLC0415

    function = {"name": "f", "arguments": {}}
    calls = [{"id": f"c{n}", "function": function} for n in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{n}"} for n in reversed(range(count))]
    said: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": calls}, *results]
    messages = [OllamaMessage.model_validate(each) for each in said]
    reader = AttachmentReader(max_bytes=1)
    return lambda: asyncio.run(read_history(messages, reader, is_whole=True))


def folder_of(place: Path, count: int) -> Path:
    """Make a tool folder of so many files."""
    place.mkdir()
    for number in range(count):
        (place / f"m{number}.py").touch()
    return place


def refused(call: Callable[..., Any], expression: str) -> None:
    with contextlib.suppress(ValueError):
        call(expression=expression)


def compare_tools(report: Report, folder: Path) -> None:
    """Compare what tools of ``mochi-server init`` do with texts that a model has chosen."""
    initialise(folder)
    package = load_package(FolderSpec(path=folder / "tools"), generation="benchmark")
    extract = package.functions["extract_from_text"].function
    calculate = package.functions["calculate"].function
    for kind in KINDS:
        for piece in PIECES:
            short, long = (
                partial(extract, text=piece * count, kind=kind)
                for count in (CHARACTERS, CHARACTERS * LONGER)
            )
            report.compare(f"extract_from_text, {kind} of {piece!r}", long, short, BAR)
    longest = partial(calculate, expression=LONGEST)
    for expression in REFUSED:
        work = partial(refused, calculate, expression)
        report.compare(f"calculate, {expression[:24]}", work, longest, REFUSED_BAR)
    package.forget()


def refused_configuration(text: str) -> None:
    with contextlib.suppress(ValueError):
        CommentedJson("{" + text)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    report = Report(3 if parser.parse_args().quick else 9)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        compare_tools(report, Path(name) / "data")
        few, many = (
            partial(check_folder, folder_of(Path(name) / str(count), count))
            for count in (MAX_ENTRIES, 3 * MAX_ENTRIES)
        )
        report.compare("snapshot of too many files", many, few, BOUND_BAR)
    spaces = [partial(words_of, " " * count) for count in (CHARACTERS, CHARACTERS * LONGER)]
    report.compare("words of a run of spaces", spaces[1], spaces[0], BAR)
    for piece in CONFIGURATION_PIECES:
        short, long = (
            partial(refused_configuration, piece * (count // len(piece)))
            for count in (CHARACTERS, CHARACTERS * LONGER)
        )
        report.compare(f"MCP configuration of {piece!r}", long, short, BAR)
    histories = [history(count) for count in (CALLS, CALLS * LONGER)]
    report.compare("history of very many calls", histories[1], histories[0], BAR)
    return int(report.missed)


if __name__ == "__main__":
    raise SystemExit(main())
