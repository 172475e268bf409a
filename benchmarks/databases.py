"""Sessions in PostgreSQL beside files: lists, searches, changes and short turns.

``python benchmarks/databases.py [COUNT] [--rounds N]``. Two servers have the same sessions and are
asked in turns. PostgreSQL is started by the benchmark, with its settings for durable writes. Times
are those of a client on the same machine; compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from catalogue import MAX_SECONDS, Server, figures, fill, run  # noqa: E402 - after the path

from tests.support.postgresql import running_postgresql  # noqa: E402


def cpu(server: Server) -> float:
    """Milliseconds of processor time that the server has used."""
    fields = Path(f"/proc/{server.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def turn(server: Server, session_id: str) -> float:
    """Milliseconds of a turn of a few words, without any pause of the model."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=MAX_SECONDS)
    link.connect()
    begin = time.perf_counter()
    body = json.dumps({"message": "Hello."})
    link.request("POST", f"/api/v1/chat/{session_id}", body, {"Content-Type": "application/json"})
    response = link.getresponse()
    answer = response.read()
    took = (time.perf_counter() - begin) * 1000
    link.close()
    if response.status != 200:
        raise SystemExit(f"{server.name}: {response.status} {answer[:200]!r}")
    return took


def compare_turns(servers: list[Server], rounds: int) -> None:
    """Take short turns in one session of each server, after one that is not counted."""
    session_id = f"{0:010x}"
    for server in servers:
        server.start()
        server.ask(f"/{session_id}", "PATCH", {"model": "test/bench"})
        turn(server, session_id)
    times: dict[str, list[float]] = {server.name: [] for server in servers}
    used = {server.name: -cpu(server) for server in servers}
    for _ in range(rounds):
        for server in servers:
            times[server.name].append(turn(server, session_id))
    figures("a short turn", times)
    for server in servers:
        used[server.name] += cpu(server)
        print(f"  {server.name}: {used[server.name] / rounds:.1f} ms of CPU for a short turn")
        server.stop()


def measure(url: str, count: int, rounds: int) -> None:
    """Fill both storages, and ask."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        files = Path(name) / "files"
        author = fill(files / "chat_sessions", count)
        begin = time.perf_counter()
        variables = {**os.environ, "MOCHI_DATA_DIR": str(files), "MOCHI_DATABASE_URL": url}
        arguments = ("copy_sessions", "--from", "json", "--to", "database")
        subprocess.run(
            [sys.executable, "-m", "mochi_server", *arguments], cwd=ROOT, env=variables, check=True
        )
        took = time.perf_counter() - begin
        print(f"{count:,} sessions, copied and compared in {took:.0f} s", flush=True)
        pace = {"test_words_per_second": "0", "summarization_enabled": "false"}
        stored = {"session_storage": "database", "database_url": url}
        (Path(name) / "database").mkdir()
        servers = [
            Server("files", ROOT, files, **pace),
            Server("database", ROOT, Path(name) / "database", **pace, **stored),
        ]
        try:
            run(servers, author, rounds)
            compare_turns(servers, rounds)
        finally:
            for server in servers:
                if hasattr(server, "child") and server.child.poll() is None:
                    server.child.kill()


async def main() -> None:
    """Start PostgreSQL as it is installed, and measure in a thread."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    async with running_postgresql(fsync="on", shared_buffers="128MB") as postgresql:
        await asyncio.to_thread(measure, postgresql.url, options.count, options.rounds)


if __name__ == "__main__":
    asyncio.run(main())
