"""Start a server on its core, measure it from outside, and end it whatever happens."""

import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
START_SECONDS = 30
SERVER_CORE, LOAD_CORE = 0, 1
UVICORN = ["--loop", "uvloop", "--http", "httptools", "--workers", "1"]
QUIET = ["--no-access-log", "--log-level", "warning"]

SHELL_FILES = 1024
"""The usual soft limit on open files; ours must do with it, for it raises it itself."""


def as_in_a_shell() -> None:
    """Give back what the benchmark has raised for itself, and for the peers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(SHELL_FILES, hard), hard))


def pin(core: int, pid: int = 0) -> None:
    """Keep a process, this one by default, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {core % (os.cpu_count() or 1)})


@contextmanager
def process(
    command: list[str], core: int, python: str = sys.executable, **options
) -> Iterator[subprocess.Popen]:
    """A child of its own, killed with its children when the block ends."""
    child = subprocess.Popen([python, *command], cwd=ROOT, **options)
    pin(core, child.pid)
    try:
        yield child
    finally:
        everyone = family(child.pid)
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(10)
        for survivor in everyone:
            if survivor.is_running() and survivor.pid != child.pid:
                survivor.kill()


def family(pid: int) -> list[psutil.Process]:
    """The process and all below it."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def give_way() -> None:
    """Leave the processor to a server that wants it."""
    os.nice(19)


@contextmanager
def upstream() -> Iterator[str]:
    """The address of a running upstream."""
    command = [str(HERE / "upstream.py")]
    with process(
        command, LOAD_CORE, stdout=subprocess.PIPE, text=True, preexec_fn=give_way
    ) as child:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"


class Server:
    """One of the servers that are compared, running."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        self.name, self.port, self.pid = name, port, pid

    def cpu(self) -> float:
        """Seconds of CPU that it has used, in all its threads and processes."""
        # The kernel's clock of a process; /proc/PID/stat counts the same in steps of 10 ms.
        return sum(time.clock_gettime((~one.pid << 3) | 2) for one in family(self.pid))

    def waited(self) -> float:
        """Seconds that its main thread was ready to run and others had its core."""
        try:
            text = Path(f"/proc/{self.pid}/schedstat").read_text()
        except OSError:  # not Linux
            return 0.0
        return int(text.split()[1]) / 1e9

    def rss(self) -> int:
        """Bytes of memory that it holds."""
        return sum(one.memory_info().rss for one in family(self.pid))

    def sessions(self, model: str, count: int) -> list[str]:
        """New sessions, made before the clock runs."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            return [self._session(link, model) for _ in range(count)]
        finally:
            link.close()

    def _session(self, link: http.client.HTTPConnection, model: str) -> str:
        body = json.dumps({"model": model})
        link.request("POST", "/api/v1/sessions", body, {"Content-Type": "application/json"})
        reply = link.getresponse()
        text = reply.read()
        if reply.status != 201:
            raise RuntimeError(f"{self.name} made no session: {reply.status} {text[:500]!r}")
        return json.loads(text)["session_id"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(name: str, port: int) -> list[str]:
    if name == "mochi-server":
        return ["-m", "mochi_server", "--port", str(port), "--log-level", "WARNING"]
    peers = ["-m", "uvicorn", "--app-dir", str(HERE), "--port", str(port), *UVICORN, *QUIET]
    return [*peers, f"{name}:app"]


@contextmanager
def server(name: str, upstream_url: str, folder: Path, *, workers: int = 1) -> Iterator[Server]:
    """A running server that answers, with its sessions below ``folder``; only ours has workers."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MOCHI_")},
        "BENCH_UPSTREAM": upstream_url,
        "BENCH_FOLDER": str(folder),
        "MOCHI_OLLAMA_HOST": upstream_url,
        "MOCHI_DATA_DIR": str(folder),
        # The peers write none.
        "MOCHI_SUMMARIZATION_ENABLED": "false",
        "MOCHI_WORKERS": str(workers),
    }
    with (
        (folder / "server.log").open("wb") as log,
        process(
            _command(name, port),
            SERVER_CORE,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=as_in_a_shell if name == "mochi-server" else None,
        ) as child,
    ):
        _wait_for(port, child, folder / "server.log")
        yield Server(name, port, child.pid)


def _wait_for(port: int, child: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"a server did not start:\n{log.read_text(errors='replace')[-3000:]}")
