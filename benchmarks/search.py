"""What searching costs: 10,000 sessions of together 200 MB, indexed, asked, changed.

``python benchmarks/search.py [--quick]``. Exits 1 when a bar is missed. The words are made up, as
unevenly frequent as those of a language; every tenth session is in Chinese.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import orjson
from sessions import Ticker, figure, idle_hold, timed, verdict

from mochi_server.core.aio import in_thread
from mochi_server.core.progress import Progress
from mochi_server.protocol.messages import now
from mochi_server.sessions import SessionManager
from mochi_server.sessions.catalogue.search import SessionSearch

BAR_BUILD, BAR_QUERY, BAR_CHANGED, BAR_HELD = 60.0, 50.0, 500.0, 50.0
SYLLABLES = re.findall("..", "bacedifogulameniporusatevianerinorunthstprretio")
VOCABULARY = 40_000
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]
FREQUENT, MIDDLE, RARE = 5, 300, 5000
"""Ranks of words that are asked for: in every session, in most, in some."""


class Author:
    """Writes sessions of about 20 KB, always the same ones."""

    def __init__(self) -> None:
        self._dice = random.Random(5)
        words: dict[str, None] = {}
        while len(words) < VOCABULARY:
            count = self._dice.choice((2, 2, 3, 3, 4))
            words["".join(self._dice.choices(SYLLABLES, k=count))] = None
        self.words = list(words)
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))
        self._han_weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(HAN))))

    def text(self, number: int, size: int) -> str:
        """About so many bytes."""
        if number % 10:
            count = size * 2 // 15
            return " ".join(self._dice.choices(self.words, cum_weights=self._weights, k=count))
        return "".join(self._dice.choices(HAN, cum_weights=self._han_weights, k=size // 3))

    def session(self, number: int, roles: list[tuple[str, int]] | None = None) -> bytes:
        """The bytes of a session file, with messages of these roles and sizes."""
        roles = roles or [("user", 600), ("assistant", 2400)] * 6 + [("tool", 2000)]
        messages = [{"role": role, "content": self.text(number, size)} for role, size in roles]
        messages[0]["content"] += f" only{number:05d}"
        time = now()
        head: dict[str, object] = {
            "session_id": f"{number:010x}",
            "model": "bench:1b",
            "created_at": time,
        }
        head |= {"updated_at": time, "message_count": len(messages), "format_version": "1.3"}
        lines = b",\n    ".join(orjson.dumps(message) for message in messages)
        start = orjson.dumps(head, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n  ")
        return b'{\n  "metadata": %b,\n  "messages": [\n    %b\n  ]\n}\n' % (start, lines)


def fill(folder: Path, author: Author, count: int) -> float:
    """Write so many sessions; megabytes."""
    size = 0
    for number in range(count):
        size += (folder / f"{number:010x}.json").write_bytes(author.session(number))
    return size / 1e6


def queries(author: Author) -> dict[str, str]:
    """What people ask, by what it is."""
    word = author.words
    return {
        "a word of one session": "only00777",
        "a rare word": word[RARE],
        "a word of most sessions": word[MIDDLE],
        "a word of every session": word[FREQUENT],
        "three words": f"{word[FREQUENT]} {word[MIDDLE]} {word[RARE]}",
        "two letters of a word": word[MIDDLE][:2],
        "a phrase": f'"{word[FREQUENT]} {word[FREQUENT + 1]}"',
        "a word, not another": f"{word[MIDDLE]} -{word[FREQUENT + 9]}",
        "two Chinese characters": "".join(HAN[20:22]),
    }


async def asked(search: SessionSearch, author: Author, rounds: int) -> bool:
    """Print what each query finds and takes; whether the medians hold the bar."""
    good = True
    for name, query in queries(author).items():
        found = len((await search.search(query, limit=100_000)).sessions)
        before = time.process_time()
        times = [await timed(lambda: search.search(query)) for _ in range(rounds)]  # noqa: B023
        cpu = (time.process_time() - before) * 1000 / rounds
        label = f"{name} ({found:,}; {cpu:.0f} ms of CPU)"
        good &= verdict(label, statistics.median(times), BAR_QUERY, "ms")
    return good


async def changed(search: SessionSearch, folder: Path, author: Author, rounds: int) -> bool:
    """Change files in place; whether each is found at the next query, in time."""
    times = []
    for number in range(rounds):
        path = folder / f"{number:010x}.json"
        path.write_bytes(author.session(number).replace(b"only", f"new{number}x".encode()))
        start = time.perf_counter()
        found = await search.search(f"new{number}x{number:05d}")
        times.append((time.perf_counter() - start) * 1000)
        if [each["session_id"] for each in found.sessions] != [path.stem]:
            print(f"  session {number} was not found after its change")
            return False
    return verdict("a changed file, median", statistics.median(times), BAR_CHANGED, "ms")


async def main(*, quick: bool) -> bool:
    """Run all and print; whether every bar is held."""
    count, rounds = (1_000, 5) if quick else (10_000, 15)
    idle = await idle_hold()
    author = Author()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "sessions"
        folder.mkdir()
        size = await in_thread(fill, folder, author, count)
        print(f"{count:,} sessions, {size:.0f} MB")
        gc.collect()
        gc.freeze()
        path = Path(name) / "catalogue.sqlite3"
        sessions = SessionManager(sessions_dir=folder, catalogue_path=path, sweep_seconds=0)
        search = SessionSearch(sessions.catalogue)
        async with Ticker() as ticker:
            bar = Progress(shown=lambda total: f"{total:,} sessions")
            seconds = await timed(lambda: search.search("", wait_seconds=None, progress=bar)) / 1000
        good = verdict("first index", seconds, BAR_BUILD, "s")
        figure("event loop held before, longest", idle, "ms")
        good &= verdict("event loop held meanwhile, longest", ticker.longest, BAR_HELD, "ms")
        figure("size of the index", path.stat().st_size / 1e6, "MB")
        good &= await asked(search, author, rounds)
        good &= await changed(search, folder, author, rounds)
        other = SessionManager(sessions_dir=folder, catalogue_path=path)
        again = SessionSearch(other.catalogue)
        figure("first query of another process", await timed(lambda: again.search("none")), "ms")
        await search.aclose()
        await again.aclose()
        await sessions.aclose()
        await other.aclose()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Peak memory of this process: {peak:.0f} MiB")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sessions")
    sys.exit(0 if asyncio.run(main(quick=parser.parse_args().quick)) else 1)
