"""What ``GET /sessions`` costs with very many sessions: lists, searches, restarts, memory.

``python benchmarks/catalogue.py [COUNT] [--tree NAME=FOLDER]...``. Real servers, one for each tree
of the source code (this one if none is named), have the same sessions and are asked in turns: so
two versions are compared in one run. Times are those of a client on the same machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from search import FREQUENT, MIDDLE, RARE, Author
from startup import NOBODY, answers
from streaming_peers.processes import free_port

ROOT = Path(__file__).parent.parent
MAX_SECONDS = 1200.0


class Server:
    """A server of one tree, on data of its own."""

    def __init__(self, name: str, tree: Path, data: Path, **settings: str) -> None:
        self.name, self.tree, self.data = name, tree, data
        self.settings = {f"MOCHI_{key.upper()}": value for key, value in settings.items()}

    def start(self) -> None:
        self.port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")}
        environment = {
            **kept,
            "MOCHI_DATA_DIR": str(self.data),
            "MOCHI_OLLAMA_HOST": NOBODY,
            "MOCHI_LOG_LEVEL": "ERROR",
            **self.settings,
        }
        command = [sys.executable, "-m", "mochi_server", "--port", str(self.port)]
        self.child = subprocess.Popen(
            command, cwd=self.tree, env=environment, stdout=subprocess.DEVNULL
        )
        while not answers(self.port):
            if self.child.poll() is not None:
                raise SystemExit(f"the server {self.name} did not start")
            time.sleep(0.005)

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(60)

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[float, bytes]:
        """Milliseconds, and the answer."""
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS)
        link.connect()
        begin = time.perf_counter()
        link.request(method, f"/api/v1/sessions{path}", content, headers)
        response = link.getresponse()
        answer = response.read()
        took = (time.perf_counter() - begin) * 1000
        link.close()
        if response.status != 200:
            raise SystemExit(f"{self.name}: {method} {path}: {response.status} {answer[:200]!r}")
        return took, answer

    def memory(self) -> tuple[float, float]:
        """MiB now, and at most so far."""
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
        return int(values["VmRSS"]) / 1024, int(values["VmHWM"]) / 1024


def fill(folder: Path, count: int) -> Author:
    """Write short sessions, two messages each, where the tests' ones have thirteen."""
    author = Author()
    folder.mkdir(parents=True)
    for number in range(count):
        content = author.session(number, roles=[("user", 200), ("assistant", 600)])
        (folder / f"{number:010x}.json").write_bytes(content)
    return author


def figures(name: str, times: dict[str, list[float]]) -> None:
    """Print one line for each server."""
    for server, values in times.items():
        ordered = sorted(values)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        median = statistics.median(ordered)
        print(f"  {name:<34} {server:<8} median {median:9.1f}  p99 {p99:9.1f} ms", flush=True)
        name = ""


def compare(servers: list[Server], name: str, rounds: int, path: str) -> None:
    """Ask the servers in turns."""
    times: dict[str, list[float]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            times[server.name].append(server.ask(path)[0])
    figures(name, times)


def compare_after_change(servers: list[Server], rounds: int) -> None:
    """Change a session before each list."""
    times: dict[str, list[float]] = {server.name: [] for server in servers}
    patches: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(rounds):
        for server in servers:
            change = {"title": f"Changed {number}"}
            patches[server.name].append(server.ask(f"/{number:010x}", "PATCH", change)[0])
            took, answer = server.ask("?limit=50")
            times[server.name].append(took)
            if json.loads(answer)["sessions"][0]["session_id"] != f"{number:010x}":
                raise SystemExit(f"{server.name}: the change is not in the list")
    figures("a change of a title", patches)
    figures("a page after that change", times)


def queries(author: Author) -> dict[str, str]:
    """What is searched, by what it is."""
    words = author.words
    return {
        "search: a word of one session": "only00777",
        "search: a rare word": words[RARE],
        "search: a word of many sessions": words[MIDDLE],
        "search: a word of nearly all": words[FREQUENT],
        "search: two words": f"{words[MIDDLE]} {words[RARE]}",
        "search: two words of nearly all": f"{words[FREQUENT]} {words[FREQUENT + 1]}",
        "search: a phrase of such words": f'"{words[FREQUENT]} {words[FREQUENT + 1]}"',
        "search: two letters": words[FREQUENT][:2],
        "search: all but a word": f"-{words[FREQUENT]}",
    }


def wait_for_index(server: Server) -> float:
    """Seconds until every text is indexed."""
    begin = time.perf_counter()
    while json.loads(server.ask("?query=none")[1])["indexing"] is not None:
        time.sleep(0.2)
    return time.perf_counter() - begin


def print_memory(servers: list[Server]) -> None:
    """Print one line for each server."""
    for server in servers:
        now, most = server.memory()
        print(f"  {server.name}: memory {now:.0f} MiB, at most {most:.0f}", flush=True)


def run(servers: list[Server], author: Author, rounds: int) -> None:
    """All figures."""
    for server in servers:
        server.start()
        print(f"  {server.name}: first list ever {server.ask('?limit=50')[0]:.0f} ms", flush=True)
    compare(servers, "a page of 50", rounds, "?limit=50")
    compare(servers, "a page of 50 with a tag", rounds, "?limit=50&tag=none")
    compare(servers, "the whole list", max(5, rounds // 10), "")
    compare_after_change(servers, rounds)
    print_memory(servers)
    for server in servers:
        print(f"  {server.name}: index of texts {wait_for_index(server):.0f} s", flush=True)
    for name, query in queries(author).items():
        compare(servers, name, rounds // 2, f"?query={quote(query)}")
        compare(servers, "  not archived", rounds // 2, f"?query={quote(query)}&archived=false")
    print_memory(servers)
    for server in servers:
        server.stop()
    for name, path in (("list", "?limit=50"), ("whole list", ""), ("search", "?query=only00778")):
        times = {}
        for server in servers:
            server.start()
            times[server.name] = [server.ask(path)[0]]
            server.stop()
        figures(f"first {name} after a restart", times)


def main() -> None:
    """Fill folders, start servers, ask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--tree", action="append", metavar="NAME=FOLDER", default=[])
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    trees = [tree.partition("=") for tree in options.tree] or [("this", "=", str(ROOT))]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        pattern = Path(name) / "pattern" / "chat_sessions"
        author = fill(pattern, options.count)
        print(f"{options.count:,} sessions", flush=True)
        servers = []
        for label, _, folder in trees:
            data = Path(name) / label
            shutil.copytree(pattern.parent, data, copy_function=os.link)
            servers.append(Server(label, Path(folder), data))
        try:
            run(servers, author, options.rounds)
        finally:
            for server in servers:
                if hasattr(server, "child") and server.child.poll() is None:
                    server.child.kill()


if __name__ == "__main__":
    main()
