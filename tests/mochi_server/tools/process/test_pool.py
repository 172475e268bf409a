"""Tools in processes: what a call can do to itself, and to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.loading import FolderSpec, LoadedFolder
from mochi_server.tools.process import worker_process
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.tool_folders import children, is_gone, loaded_folder, process_loader, tool_folder
from tests.support.waiting import until

# What these test is the process, with its start and its parent.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("fresh_tools")]

ROOT = Path(__file__).parents[4]
TOOLS = '''
    import asyncio
    import ctypes
    import faulthandler
    import os
    import signal
    import socket
    import subprocess
    import sys
    import threading
    from pathlib import Path

    __all__ = [
        "pid", "spin", "spin_in_c", "crash", "leave", "exit_from_a_thread", "grow", "leak",
        "mallocs", "flood", "say", "murmur", "child", "garbage", "answer_twice", "hang_up",
        "speak_later", "environment", "cwd", "alarm", "run_loop", "main_thread", "read_input",
    ]

    kept = []

    def note(folder):
        Path(folder, "pid").write_text(str(os.getpid()))
        Path(folder, "running").touch()

    def pid() -> int:
        """Say."""
        return os.getpid()

    def spin(folder: str) -> str:
        """Spin."""
        note(folder)
        while True:
            pass

    def spin_in_c(folder: str) -> str:
        """Wait in C, without ever letting another thread run."""
        note(folder)
        ctypes.PyDLL(None).pause()

    def crash() -> str:
        """Crash."""
        faulthandler.disable()
        ctypes.string_at(0)

    def leave(code: int) -> str:
        """Leave."""
        os._exit(code)

    def exit_from_a_thread() -> str:
        """Exit where nobody looks."""
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        return "still here"

    def grow() -> str:
        """Take memory without end."""
        parts = []
        while True:
            parts.append(bytearray(5_000_000))

    def leak(mb: int) -> int:
        """Keep memory."""
        kept.append(bytearray(mb * 1_000_000))
        return os.getpid()

    def mallocs() -> str:
        """Allocate in C and write to it, without looking whether there is any."""
        faulthandler.disable()
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        while True:
            ctypes.memset(libc.malloc(ctypes.c_size_t(20_000_000)) or 0, 1, 20_000_000)

    def flood(lines: int) -> str:
        """Print a lot."""
        for number in range(lines):
            print("line", number)
        return "done"

    def say(text: str) -> str:
        """Print."""
        print(text)
        print("and to the other one", file=sys.stderr)
        return "said"

    def murmur() -> str:
        """Print what has no end."""
        os.write(1, b"no new line")
        return "said"

    def child(folder: str) -> str:
        """Start a program and wait for it."""
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(folder, "child").write_text(str(process.pid))
        note(folder)
        process.wait()
        return "no"

    def the_socket():
        return next(
            number for number in range(3, 100)
            if os.path.exists(f"/proc/self/fd/{number}")
            and os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        )

    def garbage() -> str:
        """Write nonsense to the server."""
        os.write(the_socket(), b"\\0\\0\\0\\5hello")
        return "done"

    def answer_twice(number: int) -> str:
        """Answer before the answer."""
        import json
        body = json.dumps({"id": number, "kind": "done", "value": "forged", "text": "", "trace": "",
                           "size": 0}).encode()
        os.write(the_socket(), len(body).to_bytes(4, "big") + body)
        return "true"

    def speak_later(folder: str) -> str:
        """Write to the server when nobody asks."""
        def speak():
            while not Path(folder, "now").exists():
                threading.Event().wait(0.01)
            os.write(number, b"x")
        number = the_socket()
        threading.Thread(target=speak, daemon=True).start()
        return "later"

    def hang_up() -> str:
        """Close the connection and go on."""
        socket.socket(fileno=os.dup(the_socket())).shutdown(socket.SHUT_RDWR)
        threading.Event().wait(300)
        return "no"

    def environment() -> dict:
        """Say."""
        return dict(os.environ)

    def cwd(change: str) -> str:
        """Say where we are, then go elsewhere."""
        before = os.getcwd()
        os.chdir(change)
        return before

    def alarm() -> float:
        """Leave a timer that kills; say what an earlier one has left."""
        return float(signal.alarm(60))

    def run_loop() -> str:
        """Run a loop of one's own, in a function that is not async."""
        return asyncio.run(asyncio.sleep(0, "ran"))

    def main_thread() -> bool:
        """Say."""
        return threading.current_thread() is threading.main_thread()

    def read_input() -> str:
        """Read what the server would read."""
        return sys.stdin.read()
'''


@pytest.fixture
def others() -> set[int]:
    """Children that were there before the test: those of other tests."""
    return children()


@asynccontextmanager
async def loading() -> AsyncIterator[ProcessLoader]:
    """A loader after whose end no child is left, not even a zombie."""
    before = children()
    async with process_loader(workers=4, memory_mb=200, start_seconds=100) as loader:
        yield loader
    assert children() - before == set()


async def test_a_process_that_idles_ends_for_a_busy_folder_and_one_too_many_is_refused(
    tmp_path: Path,
):
    calls = []
    async with process_loader(processes=1, start_seconds=100) as loader:
        busy, idle = [await loaded(loader, tmp_path / name) for name in ("busy", "idle")]
        idle_pid = await pid_of(idle)
        for name in ("one", "two"):  # each folder has a process from its loading
            (tmp_path / name).mkdir()
            calls.append(started(busy, "spin", tmp_path / name))
            await until((tmp_path / name / "running").exists)
        await until(lambda: is_gone(idle_pid))
        with pytest.raises(ToolFailed, match="runs 1 processes of tools already"):
            await idle.call("pid", {})
        for call in calls:
            await cancelled(call)
        assert await pid_of(idle) != idle_pid


async def loaded(loader: ProcessLoader, path: Path) -> LoadedFolder:
    [folder] = await loader.load([tool_folder(path, TOOLS)])
    assert not folder.description.problems
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="folder")
async def common(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LoadedFolder]:
    """One for all tests that leave one idle process of it, or none."""
    async with loading() as loader:
        yield await loaded(loader, tmp_path_factory.mktemp("tools") / "mine")


@pytest_asyncio.fixture(loop_scope="module")
async def loader() -> AsyncIterator[ProcessLoader]:
    async with loading() as loader:
        yield loader


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(loader: ProcessLoader, tmp_path: Path) -> LoadedFolder:
    """One whose first process has done nothing yet."""
    return await loaded(loader, tmp_path / "mine")


async def pid_of(folder: LoadedFolder) -> int:
    return int(await folder.call("pid", {}))


def started(folder: LoadedFolder, tool: str, tmp_path: Path) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(folder.call(tool, {"folder": str(tmp_path)}))


async def cancelled(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with anyio.fail_after(30), pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("tool", ["spin", "spin_in_c"])
async def test_a_cancelled_endless_loop_is_gone(folder: LoadedFolder, tmp_path: Path, tool: str):
    call = started(folder, tool, tmp_path)
    await until((tmp_path / "running").exists)
    pid = int((tmp_path / "pid").read_text())
    assert not is_gone(pid)

    await cancelled(call)

    await until(lambda: is_gone(pid))
    assert await pid_of(folder) != pid


async def test_what_a_tool_started_goes_with_it(folder: LoadedFolder, tmp_path: Path):
    call = started(folder, "child", tmp_path)
    await until((tmp_path / "running").exists)
    child = int((tmp_path / "child").read_text())

    await cancelled(call)

    await until(lambda: is_gone(child))


async def test_idle_processes_are_used_again_and_only_one_is_needed(folder: LoadedFolder):
    assert len({await pid_of(folder) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("crash", {}, "killed by signal SIGSEGV"),
        ("leave", {"code": 0}, "ended with exit code 0"),
        ("leave", {"code": 7}, "ended with exit code 7"),
        ("garbage", {}, "nonsense"),
        ("hang_up", {}, "closed its connection"),
    ],
)
async def test_a_process_that_ends_says_how_and_the_next_call_has_another(
    folder: LoadedFolder, tool: str, arguments: dict[str, Any], reason: str
):
    before = await pid_of(folder)
    with anyio.fail_after(30), pytest.raises(ToolFailed, match=reason):
        await folder.call(tool, arguments)

    assert await pid_of(folder) != before
    await until(lambda: is_gone(before))


async def test_a_process_says_how_it_ended_though_the_server_hears_of_it_late(
    folder: LoadedFolder, monkeypatch: pytest.MonkeyPatch
):
    """On a busy machine a moment passes between the end of its socket and that of the process."""
    monkeypatch.setattr(worker_process, "SETTLE_SECONDS", 0)
    with pytest.raises(ToolFailed, match="ended with exit code 7"):
        await folder.call("leave", {"code": 7})


LATE = """#!{python}
import os, subprocess, sys, time
process = subprocess.Popen([{python!r}, *sys.argv[1:]], close_fds=False)
os.closerange(3, 256)
code = process.wait()
time.sleep(1)
os._exit(code)
"""
"""The program of a sandbox, which ends a second after what it runs."""


class LateSandbox:
    """Confines nothing."""

    def __init__(self, program: Path) -> None:
        self.program, self.sandbox = program, self

    async def problem(self) -> None:
        """Have none."""

    def spec(self, *_: Any, environment: Any, **__: Any) -> Any:
        return environment

    def command(self, argv: Any, environment: Any) -> Any:
        return SimpleNamespace(argv=[str(self.program), *argv[1:]], env=environment)


async def test_a_process_says_how_it_ended_though_its_sandbox_ends_late(tmp_path: Path):
    program = tmp_path / "late"
    program.write_text(LATE.format(python=sys.executable))
    program.chmod(0o700)
    options: Any = {"confinement": LateSandbox(program)}
    async with loaded_folder(tmp_path / "mine", TOOLS, **options) as folder:
        with pytest.raises(ToolFailed, match="ended with exit code 7"):
            await folder.call("leave", {"code": 7})


async def test_one_that_is_killed_from_outside_says_so(folder: LoadedFolder, tmp_path: Path):
    call = started(folder, "spin", tmp_path)
    await until((tmp_path / "running").exists)

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    with anyio.fail_after(30), pytest.raises(ToolFailed, match="killed by signal SIGKILL"):
        await call


async def test_a_process_that_dies_between_calls_is_replaced(folder: LoadedFolder):
    before = await pid_of(folder)
    os.kill(before, signal.SIGKILL)
    await until(lambda: is_gone(before))

    assert await pid_of(folder) != before


async def test_answers_to_another_request_are_passed_over(fresh: LoadedFolder):
    """The load was the first request, these are the second and the third."""
    assert await fresh.call("answer_twice", {"number": 1}) == "true"
    assert await fresh.call("answer_twice", {"number": 4}) == "true"
    assert await fresh.call("exit_from_a_thread", {}) == "still here"


async def test_a_process_that_answers_twice_deceives_its_own_call_only(fresh: LoadedFolder):
    assert await fresh.call("answer_twice", {"number": 2}) == "forged"
    assert await fresh.call("exit_from_a_thread", {}) == "still here"
    assert await fresh.call("main_thread", {}) == "True"


async def test_a_process_that_speaks_between_calls_is_replaced(
    folder: LoadedFolder, tmp_path: Path
):
    before = await pid_of(folder)
    await folder.call("speak_later", {"folder": str(tmp_path)})
    (tmp_path / "now").touch()
    await until(lambda: is_gone(before))

    assert await pid_of(folder) != before


async def test_arguments_that_are_too_large_are_refused(folder: LoadedFolder):
    with pytest.raises(ToolFailed, match="larger than 40 MiB"):
        await folder.call("say", {"text": "x" * 42_000_000})

    assert await pid_of(folder) > 0


async def test_a_start_that_hangs_ends_with_its_call(tmp_path: Path, others: set[int]):
    loader = ProcessLoader(WorkerOptions(start_seconds=10))
    (tmp_path / "pids").mkdir()
    code = """
        import os
        import threading
        from pathlib import Path

        __all__ = ["pid"]
        here = Path(__file__).parent
        (here / "pids" / str(os.getpid())).touch()
        if (here / "slow").exists():
            threading.Event().wait(300)

        def pid() -> int:
            "Say."
            return os.getpid()
    """
    [folder] = await loader.load([tool_folder(tmp_path, code)])
    pids = {await pid_of(folder)}
    (tmp_path / "slow").touch()
    os.kill(min(pids), signal.SIGKILL)
    await until(lambda: is_gone(min(pids)))

    def new() -> set[int]:
        return {int(each.name) for each in (tmp_path / "pids").iterdir()} - pids

    call = asyncio.get_running_loop().create_task(folder.call("pid", {}))
    await until(lambda: bool(new()))
    [first] = new()
    pids.add(first)
    await cancelled(call)
    await until(lambda: is_gone(first))
    with pytest.raises(ToolFailed, match="did not load within 10 seconds"):
        await folder.call("pid", {})
    [second] = new()
    await until(lambda: is_gone(second))
    await loader.aclose()
    assert children() - others == set()


async def test_memory_without_end_is_an_error_of_that_call(folder: LoadedFolder):
    with anyio.fail_after(30), pytest.raises(ToolFailed, match="MemoryError"):
        await folder.call("grow", {})

    assert int(await folder.call("leak", {"mb": 50})) > 0


async def test_a_leak_is_in_no_later_call(fresh: LoadedFolder):
    """Where half of what is free is taken, the next call starts in a process of its own."""
    pids = [int(await fresh.call("leak", {"mb": 90})) for _ in range(4)]

    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_c_code_that_finds_no_memory_ends_its_process(folder: LoadedFolder):
    with anyio.fail_after(30), pytest.raises(ToolFailed, match=r"killed by signal|more than"):
        await folder.call("mallocs", {})

    assert await pid_of(folder) > 0


async def test_what_is_printed_is_in_the_log(
    loader: ProcessLoader, fresh: LoadedFolder, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, logger="mochi_server.tools.process.output"):
        assert await fresh.call("say", {"text": "one\x1b[31m\ntwo"}) == "said"
        assert await fresh.call("say", {"text": "y" * 5000}) == "said"
        assert await fresh.call("murmur", {}) == "said"
        await loader.aclose()

    assert "mine: one\\x1b[31m\n" in caplog.text
    assert "mine: two\n" in caplog.text
    assert "mine: no new line" in caplog.text
    assert "y" * 2000 + "…" in caplog.text
    assert "y" * 2001 not in caplog.text


async def test_a_flood_of_output_is_cut_short(
    loader: ProcessLoader, fresh: LoadedFolder, caplog: pytest.LogCaptureFixture
):
    began = anyio.current_time()
    with caplog.at_level(logging.INFO, logger="mochi_server.tools.process.output"):
        with anyio.fail_after(60):
            assert await fresh.call("flood", {"lines": 100_000}) == "done"
        await loader.aclose()
    seconds = anyio.current_time() - began

    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "mine: line 0"
    assert 200 <= len(lines) < 600 + 20 * seconds
    assert any("lines were left out" in line for line in lines)


async def test_a_tool_gets_the_variables_that_are_named_for_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MOCHI_API_TOKEN", "mochi-hidden")
    monkeypatch.setenv("OPENAI_API_KEY", "openai-hidden")
    monkeypatch.setenv("MY_TOOLS_SETTING", "shown")
    async with loaded_folder(tmp_path, TOOLS, variables=["MY_TOOLS_SETTING"]) as folder:
        environment = await folder.call("environment", {})
    assert "hidden" not in environment
    assert '"MY_TOOLS_SETTING": "shown"' in environment


async def test_every_call_begins_in_the_working_directory(tmp_path: Path):
    """It is made where it is not there, also when a tool has deleted it."""
    here = tmp_path / "deep" / "work"
    code = textwrap.dedent(TOOLS) + "Path('imported').touch()\n"
    async with loaded_folder(tmp_path / "mine", code, workers=1, working_dir=here) as folder:
        assert await folder.call("cwd", {"change": "/"}) == str(here)
        assert await folder.call("cwd", {"change": "/"}) == str(here)
        (here / "imported").unlink()
        here.rmdir()
        assert await folder.call("cwd", {"change": "/"}) == str(here)


async def test_where_the_working_directory_cannot_be_entered_nothing_runs(tmp_path: Path):
    """A relative path would mean another file elsewhere."""
    (tmp_path / "file").write_text("no folder")
    here = tmp_path / "file" / "work"
    async with loaded_folder(tmp_path / "mine", TOOLS, working_dir=here) as folder:
        assert folder.description.tools == ()
        assert "cannot be entered: Not a directory" in folder.description.problems[0].reason


async def test_a_timer_that_was_left_running_hurts_no_later_call(folder: LoadedFolder):
    assert await folder.call("alarm", {}) == "0.0"
    assert await folder.call("alarm", {}) == "0.0"


async def test_functions_run_in_the_main_thread_without_a_loop(folder: LoadedFolder):
    assert await folder.call("main_thread", {}) == "True"
    assert await folder.call("run_loop", {}) == "ran"
    assert await folder.call("read_input", {}) == ""


async def test_files_of_the_folder_hide_no_module(loader: ProcessLoader, tmp_path: Path):
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')")
    (tmp_path / "decimal.py").write_text("raise RuntimeError('the wrong decimal')")
    code = """
        import decimal
        __all__ = ["half"]

        def half() -> str:
            "Say."
            return str(decimal.Decimal(1) / 2)
    """

    [folder] = await loader.load([tool_folder(tmp_path, code)])

    assert await folder.call("half", {}) == "0.5"


async def test_a_tool_may_use_what_our_own_start_left_out(loader: ProcessLoader, tmp_path: Path):
    """A process starts without ollama's HTTP client, a loop, and the events of turns."""
    code = """
        import sys
        events = "mochi_server.protocol.events"
        started_with = [name for name in ("httpx", "asyncio", events) if name in sys.modules]
        import ollama
        __all__ = ["look"]

        def look() -> list:
            "Look."
            return [started_with, ollama.AsyncClient.__name__, ollama.Message.__name__]
    """

    [folder] = await loader.load([tool_folder(tmp_path, code)])

    assert await folder.call("look", {}) == '[[], "AsyncClient", "Message"]'


async def test_two_calls_of_a_reply_begin_in_processes_that_are_ready(tmp_path: Path):
    before = children()
    async with process_loader(workers=4, idle_seconds=0) as loader:
        folder = await loaded(loader, tmp_path / "mine")
        folder.prepare()
        folder.prepare()
        await until(lambda: len(children() - before) == 2)
        ready = children() - before
        calls, used = [], []
        for name in ("a", "b", "c"):
            (tmp_path / name).mkdir()
            calls.append(started(folder, "child", tmp_path / name))
            await until((tmp_path / name / "running").exists)
            used.append(int((tmp_path / name / "pid").read_text()))
        assert (set(used[:2]), len(set(used))) == (ready, 3)
        for name in ("a", "b", "c"):
            os.kill(int((tmp_path / name / "child").read_text()), signal.SIGKILL)
        await asyncio.gather(*calls)
        await until(lambda: len(children() - before) == 2)


async def test_where_there_is_no_room_none_is_made_ready(tmp_path: Path):
    before = children()
    async with process_loader(processes=2) as loader:
        folders = [await loaded(loader, tmp_path / name) for name in ("one", "two")]
        for folder in folders:
            folder.prepare()
        pids = [await pid_of(folder) for folder in folders]
        assert [await pid_of(folder) for folder in folders] == pids
        assert children() - before == set(pids)


async def test_what_is_made_ready_ends_no_process_of_another_folder(tmp_path: Path):
    before = children()
    async with process_loader(processes=2) as loader:
        one = await loaded(loader, tmp_path / "one")
        pid = await pid_of(one)
        other = await loaded(loader, tmp_path / "two")
        assert [await pid_of(one), len(children() - before)] == [pid, 2]
        other.prepare()
        await pid_of(other)
        assert await pid_of(one) == pid


async def test_processes_that_nobody_needs_end_but_for_one(tmp_path: Path):
    loader = ProcessLoader(WorkerOptions(workers=4, idle_seconds=0.2))
    [folder] = await loader.load([tool_folder(tmp_path / "mine", TOOLS)])
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    calls = [started(folder, "child", tmp_path / name) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        await until((tmp_path / name / "running").exists)
    pids = [int((tmp_path / name / "pid").read_text()) for name in ("a", "b", "c")]
    assert len(set(pids)) == 3

    for name in ("a", "b", "c"):
        os.kill(int((tmp_path / name / "child").read_text()), signal.SIGKILL)
    await asyncio.gather(*calls)

    await until(lambda: sum(map(is_gone, pids)) == 2)
    assert await pid_of(folder) in pids
    await loader.aclose()
    await until(lambda: all(map(is_gone, pids)))


@pytest.mark.slow
async def test_an_import_that_crashes_or_hangs_hides_no_other_folder(tmp_path: Path):
    loader = ProcessLoader(WorkerOptions(start_seconds=10))
    crashes, hangs, good = await loader.load(
        [
            tool_folder(tmp_path / "crashes", "import os; os.kill(os.getpid(), 11)"),
            tool_folder(tmp_path / "hangs", "import time\nwhile True: time.sleep(0.1)"),
            tool_folder(tmp_path / "good", TOOLS),
        ]
    )

    assert "killed by signal SIGSEGV" in crashes.description.problems[0].reason
    assert "within 10 seconds" in hangs.description.problems[0].reason
    assert await good.call("main_thread", {}) == "True"
    await loader.aclose()


async def test_a_new_process_of_an_old_generation_has_the_present_code(
    loader: ProcessLoader, tmp_path: Path
):
    code = """
        import os
        __all__ = ["say"]

        def say({parameters}) -> str:
            "Say."
            return "{word}" + str(os.getpid())
    """
    [old] = await loader.load([tool_folder(tmp_path, code.format(parameters="", word="old"))])
    pid = int((await old.call("say", {})).removeprefix("old"))
    tool_folder(tmp_path, code.format(parameters="n: int = 1", word="newer"))
    assert (await old.call("say", {})) == f"old{pid}"

    os.kill(pid, signal.SIGKILL)
    await until(lambda: is_gone(pid))

    assert (await old.call("say", {})).startswith("newer")
    (tmp_path / "__init__.py").write_text("__all__ = []")
    [now] = await loader.load([tool_folder(tmp_path, "__all__ = []")])
    assert not now.description.tools


async def test_nothing_is_started_for_a_folder_that_is_not_there(tmp_path: Path, others: set[int]):
    loader = ProcessLoader()

    [folder] = await loader.load([FolderSpec(path=tmp_path / "none")])

    assert not folder.description.tools
    assert children() - others == set()
    await loader.aclose()


async def test_a_process_that_cannot_be_started_is_a_failure(
    folder: LoadedFolder, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ToolFailed):
        await folder.call("leave", {"code": 1})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(ToolFailed, match="cannot be started: No such file"):
        await folder.call("pid", {})


@pytest.mark.parametrize("is_idle", [True, False])
async def test_the_end_of_a_process_is_waited_for_where_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_idle: bool
):
    """Else the server goes on without it, and asyncio warns of what it has left."""
    start = asyncio.create_subprocess_exec
    ended: list[int] = []

    async def start_late_one(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **options)
        wait = process.wait

        async def late() -> int:
            code = await wait()
            await anyio.sleep(2.5)
            ended.append(process.pid)
            return code

        monkeypatch.setattr(process, "wait", late)
        return process

    async with loading() as loader:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", start_late_one)
        folder = await loaded(loader, tmp_path / "mine")
        pid = await pid_of(folder)
        if not is_idle:
            call = started(folder, "child", tmp_path)
            await until((tmp_path / "running").exists)
            await cancelled(call)
    assert pid in ended


async def test_what_is_to_be_made_ready_is_not_started_when_the_folder_is_closed(tmp_path: Path):
    async with loading() as loader:
        folder = await loaded(loader, tmp_path / "mine")
        folder.prepare()
        await folder.aclose()


async def test_a_server_without_descriptors_fails_the_call_and_recovers(folder: LoadedFolder):
    with pytest.raises(ToolFailed):
        await folder.call("leave", {"code": 1})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        with anyio.fail_after(30), pytest.raises(ToolFailed, match="cannot be started"):
            await folder.call("pid", {})
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert await pid_of(folder) > 0


SERVER = """
    import asyncio, sys
    from pathlib import Path
    from mochi_server.tools.loading import FolderSpec
    from mochi_server.tools.process.loader import ProcessLoader

    async def main():
        [folder] = await ProcessLoader().load([FolderSpec(path=Path(sys.argv[1]))])
        names = sys.argv[2:]
        for name in names:
            Path(sys.argv[1], name).mkdir()
        await asyncio.gather(
            *(folder.call(name, {"folder": str(Path(sys.argv[1], name))}) for name in names)
        )

    if LOOP == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_server_that_is_killed_takes_all_of_it_down(tmp_path: Path, loop: str):
    """Also what hangs in C code, and the programs that tools have started."""
    names = ["spin", "spin_in_c", "child"]
    mine = tmp_path / "mine"
    tool_folder(mine, TOOLS)
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"LOOP = {loop!r}\n" + textwrap.dedent(SERVER),
        str(mine),
        *names,
        cwd=ROOT,
    )
    for name in names:
        await until((mine / name / "running").exists)
    pids = [int((mine / name / "pid").read_text()) for name in names]
    pids.append(int((mine / "child" / "child").read_text()))
    assert not any(map(is_gone, pids))

    server.kill()
    await server.wait()

    await until(lambda: all(map(is_gone, pids)))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_server_that_ends_without_closing_leaves_nothing(tmp_path: Path, loop: str):
    mine = tmp_path / "mine"
    tool_folder(mine, TOOLS)
    code = textwrap.dedent(SERVER).replace("await asyncio.gather(", "raise SystemExit; print(")
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"LOOP = {loop!r}\n"
        + code.replace("names = ", 'print(await folder.call("pid", {})); names = '),
        str(mine),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await server.communicate()

    await until(lambda: is_gone(int(output)))


# Folders, which several processes describe side by side


MANY = 35
CODE = '''
__all__ = ["work{number}"]

def work{number}() -> str:
    """Work."""
    return "done {number}"
'''


@pytest.mark.parametrize("count", [0, 1, 7, 17, MANY])
async def test_folders_come_back_in_their_order(tmp_path: Path, count: int) -> None:
    """Each with its own tools, which can be called."""
    specs = [tool_folder(tmp_path / f"f{n}", CODE.format(number=n)) for n in range(count)]
    async with process_loader() as loader:
        found = await loader.load(specs)
        assert [each.description.folder for each in found] == [str(each.path) for each in specs]
        names = [[tool.name for tool in each.description.tools] for each in found]
        assert names == [[f"work{n}"] for n in range(count)]
        if found:
            last = count - 1
            assert await found[last].call(f"work{last}", {}) == f"done {last}"


async def test_folders_that_end_their_process_hurt_no_other(tmp_path: Path) -> None:
    """First, last and in the middle of what one process describes."""
    deadly = {0, 9, 10, 20, MANY - 1}
    specs = [
        tool_folder(
            tmp_path / f"f{n}",
            "import os\nos._exit(3)\n" if n in deadly else CODE.format(number=n),
        )
        for n in range(MANY)
    ]
    async with process_loader() as loader:
        found = await loader.load(specs)
        broken = {n for n, each in enumerate(found) if each.description.problems}
        assert broken == deadly
        assert all(found[n].description.tools for n in range(MANY) if n not in deadly)


async def test_modules_in_the_servers_working_directory_hide_none_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "logging", "socket", "mochi_server"):
        (here / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(here)
    async with loaded_folder(tmp_path / "tools", CODE.format(number=1)) as folder:
        assert folder.description.problems == ()
        assert await folder.call("work1", {}) == "done 1"
