"""A fork is like a process of its own (the process that forks: tests/support/forked.py)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.core.aio import BackgroundTasks
from mochi_server.tools.process.output import LineAllowance
from mochi_server.tools.process.worker_process import WorkerOptions, WorkerProcess
from tests.support import forked
from tests.support.forked import ForkedProcess, is_forkable, start_python
from tests.support.server import environment, running_server
from tests.support.tool_folders import children, loaded_folder, tool_folder

DESCRIBES_ITSELF = """
import atexit, json, os, signal, sys, tempfile, threading

atexit.register(lambda: print("the end", flush=True))

def of(stream):
    return [stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(),
            stream.line_buffering, stream.write_through, stream.fileno()]

json.dump({
    "argv": sys.argv, "original": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "main": [__name__, __spec__.name, __file__, sorted(vars(sys.modules["__main__"]))],
    "cwd": os.getcwd(), "environ": dict(os.environ), "umask": os.umask(0),
    "group": [os.getpgid(0), os.getsid(0)],
    "signals": {n.name: str(signal.getsignal(n)).partition(" at ")[0]
                for n in signal.valid_signals() if isinstance(n, signal.Signals)},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": [n for n in range(100) if os.path.exists(f"/proc/self/fd/{n}")],
    "streams": [of(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": [thread.name for thread in threading.enumerate()],
    "temporary": tempfile.gettempdir(), "tests": "tests" in sys.modules,
    "settings": "mochi_project.settings" in sys.modules, "read": sys.stdin.read(),
}, sys.stdout)
print()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def _can_fork() -> None:
    if not is_forkable(("-m", "mochi_server"), environment()):
        pytest.skip("nothing is forked here")


async def run(code: str, tmp_path: Path, *arguments: str) -> tuple[Any, ...]:
    """The exit code, output and errors of a module with this code."""
    (tmp_path / "own_module.py").write_text(code)
    pipe = subprocess.PIPE
    process = await start_python(
        *("-m", "own_module", *arguments),
        cwd=tmp_path,
        env=environment(port=1) | {"TMPDIR": str(tmp_path)},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    assert isinstance(process, ForkedProcess) is forked.forks
    with anyio.fail_after(100):
        out, err = await process.communicate(b"typed")
    return await process.wait(), out.decode(), err.decode()


async def test_a_fork_sees_what_a_process_of_its_own_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = await run(DESCRIBES_ITSELF, tmp_path, "7", "x")
    monkeypatch.setattr(forked, "forks", False)
    fresh_code, fresh_out, fresh_err = await run(DESCRIBES_ITSELF, tmp_path, "7", "x")
    assert (code, err) == (fresh_code, fresh_err) == (7, "")
    line, end = out.splitlines()
    fresh_line, fresh_end = fresh_out.splitlines()
    assert json.loads(line) == json.loads(fresh_line)
    assert end == fresh_end == "the end"


@pytest.mark.parametrize(
    ("statement", "code", "error"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("raise SystemExit('sorry')", 1, "sorry"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os; os._exit(3)", 3, ""),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    ],
)
async def test_a_fork_ends_as_a_process_of_its_own_does(
    tmp_path: Path, statement: str, code: int, error: str
) -> None:
    ended, out, err = await run(statement, tmp_path)
    assert (ended, out) == (code, "")
    assert err.rpartition("\n")[0].rpartition("\n")[2] == error


async def test_the_process_that_forks_outlives_who_asks_it_to(tmp_path: Path) -> None:
    job = {"command": ("-m", "nothing"), "cwd": str(tmp_path), "env": {}, "forks_tools": False}
    asker, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asker.close()  # as of a server that was killed just then
    null = os.open(os.devnull, os.O_RDWR)
    with status:
        content = json.dumps({**job, "umask": 0o022}).encode()
        files = [null, null, null, status.fileno()]
        forked.send_job(forked._running_parent().control, content, files)
    os.close(null)
    assert await run("print('here')", tmp_path) == (0, "here\n", "")


async def test_forks_have_chances_of_their_own(tmp_path: Path) -> None:
    chances = "import random, secrets, tempfile, uuid; print(random.random(), uuid.uuid4(), "
    chances += "secrets.token_hex(), next(tempfile._get_candidate_names()))"
    drawn = [(await run(chances, tmp_path))[1].split() for _ in range(2)]
    assert all(one != two for one, two in zip(*drawn, strict=True)), drawn


async def test_what_the_interpreter_reads_at_its_start_is_not_forked(tmp_path: Path) -> None:
    assert is_forkable(("-m", "mochi_server"), environment(port=1) | {"HOME": "/nowhere"})
    for name in ("PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "TZ", "SSL_CERT_FILE"):
        assert not is_forkable(("-m", "mochi_server"), environment() | {name: "else"}), name
    assert not is_forkable(("-c", "pass"), environment())


async def test_servers_are_forked_and_stopped_one_by_one(tmp_path: Path) -> None:
    async with running_server(data_dir=tmp_path / "one", cwd=tmp_path) as one:
        async with running_server(data_dir=tmp_path / "two", cwd=tmp_path) as two:
            assert isinstance(one.process, ForkedProcess)
            assert await two.stop() == 0
        status, _ = await one.get("/health")
        assert status == 200
        assert await one.stop(signal.SIGKILL) == -signal.SIGKILL


async def test_a_fork_that_ends_before_anybody_looks_has_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text("raise SystemExit(3)")
    send = forked.send_job

    def send_and_wait(control: socket.socket, content: bytes, files: list[int]) -> None:
        send(control, content, files)
        for _ in range(2):  # when these have been told the end of, the first has been
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    send(control, content, [*files[:3], theirs.fileno()])
                while ours.recv(64):
                    pass

    monkeypatch.setattr(forked, "send_job", send_and_wait)
    process = await start_python("-m", "own_module", cwd=tmp_path, env=environment())
    with anyio.fail_after(100):
        assert await process.wait() == 3


TELLS_OF_ITSELF = '''
import gc, json, os, signal, socket, sys, tempfile, threading

__all__ = ["describe"]


def of(stream):
    return [stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(),
            stream.line_buffering, stream.write_through, stream.fileno()]


def describe() -> str:
    """Describe the process."""
    return json.dumps({
        "arguments": [sys.argv[0], *sys.argv[2:]], "search": sys.argv[1:2],
        "original": sys.orig_argv[:3], "path": sys.path, "flags": list(sys.flags),
        "main": sorted(vars(sys.modules["__main__"])),
        "modules": sorted(name for name in sys.modules if "." not in name),
        "cwd": os.getcwd(), "environ": dict(os.environ), "umask": os.umask(0),
        "leads": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
        "signals": {n.name: str(signal.getsignal(n)).partition(" at ")[0]
                    for n in signal.valid_signals() if isinstance(n, signal.Signals)},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "files": len(os.listdir("/proc/self/fd")), "gc": [gc.isenabled(), gc.get_threshold()],
        "streams": [of(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "threads": [thread.name for thread in threading.enumerate()],
        "temporary": tempfile.gettempdir(),
    })
'''


async def description(folder: Path) -> dict[str, Any]:
    """What the process of a tool says of itself, and whether it is a child of this one."""
    forked.parent_of_tools()  # which is a child, too
    before = children()
    async with loaded_folder(folder, TELLS_OF_ITSELF) as loaded:
        is_child = bool(children() - before)
        return json.loads(await loaded.call("describe", {})) | {"is_child": is_child}


async def test_a_forked_process_of_tools_sees_what_one_of_its_own_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    forked_one = await description(tmp_path / "tools")
    monkeypatch.setattr(forked, "forks_tools", False)
    fresh_one = await description(tmp_path / "tools")
    assert (forked_one.pop("is_child"), fresh_one.pop("is_child")) == (False, True)
    assert forked_one == fresh_one


async def test_a_forked_process_of_tools_leads_its_group_as_soon_as_its_id_is_known(
    tmp_path: Path,
) -> None:
    """Else who kills the group at once kills nothing, and waits for its end in vain."""
    spec, tasks = tool_folder(tmp_path, ""), BackgroundTasks()
    with anyio.fail_after(100):
        for _ in range(20):
            worker = WorkerProcess(spec, WorkerOptions(), tasks, LineAllowance())
            while (pid := worker.pid) is None:
                await anyio.lowlevel.checkpoint()
            assert os.getpgid(pid) == pid
            worker.kill("its id is known")
            await tasks.drain(30)
