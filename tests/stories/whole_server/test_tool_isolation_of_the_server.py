"""Tools that do their worst, in processes, at a real server: each may hurt its own call only.

What they do to the pace of others is measured by ``benchmarks/tool_interference.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, connector, running_server
from tests.support.tools import function, write_tools
from tests.support.waiting import until

MARK = "TEST_OF_HOSTILE_TOOLS"
MEMORY_MB = 200
TIMEOUT = 20
"""Seconds that a tool may take on a busy machine; those that never end have less."""
SPINNING = 0.5
"""Seconds for tools that would burn a processor for so long, and do nothing else."""
MAX_CALL = 60
WORDS = [f"word{n} " for n in range(25)]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_tools")]

# Name, body, and what the call's result or its failure must say. What a process makes of each
# exception, exit code and signal is tested with the loaders and the pool.
FAILS: dict[str, tuple[str, str]] = {
    "loop": ("while True:\n    pass", f"longer than {SPINNING} seconds"),
    "loop_in_c": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", f"longer than {SPINNING}"),
    "stop_itself": (
        "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)",
        f"longer than {SPINNING} seconds",
    ),
    "block_signals": (
        (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {9, 19})\n"
            "time.sleep(60)"
        ),
        "longer than",
    ),
    "leave": ("os._exit(3)", "exit code 3"),
    "kill_group": ("os.killpg(0, signal.SIGKILL)", "SIGKILL"),
    "leak": ("held = []\nwhile True:\n    held.append(bytearray(1_000_000))", "(?i)memory"),
    "leak_shared": (
        (
            "import mmap\nheld = []\nwhile True:\n"
            "    held.append(mmap.mmap(-1, 10_000_000))\n"
            "    held[-1].write(b'x' * 10_000_000)\n"
            "    time.sleep(0.02)"
        ),
        "(?i)memory",
    ),
    "flood_for_ever": ("while True:\n    print('flood ' * 20)", f"longer than {SPINNING}"),
    "big_error": ("raise ValueError('x' * 50_000_000)", "ValueError: xxx"),
    "close_all": ("os.closerange(0, 51)\ntime.sleep(1)\nreturn 'Done.'", "connection|ended"),
    "write_all": (
        (
            "for number in range(3, 51):\n    try:\n        os.write(number, b'garbage!' * 99)\n"
            "    except OSError:\n        pass\ntime.sleep(60)"
        ),
        "nonsense",
    ),
    "base": (
        "class Own(BaseException):\n    def __str__(self):\n        raise self\nraise Own",
        "Own",
    ),
    "group": (
        "raise type('Odd', (Exception,), {'__class__': property(lambda s: 1 / 0)})('odd')",
        "odd|Odd|ZeroDivisionError",
    ),
    "deep_result": (
        "found = []\nfor _ in range(100_000):\n    found = [found]\nreturn found",
        "Recursion|deep",
    ),
    "bad_text": (
        (
            "class Text(str):\n    def __len__(self):\n        raise MemoryError\n"
            "    def encode(self, *_):\n        os._exit(5)\nreturn Text('x')"
        ),
        "",
    ),
    "no_files": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\nopen('/dev/null')",
        "OSError|exit code",
    ),
    "no_json": ("import json\njson.dumps = lambda *_, **__: None\nreturn ''", "exit code 1"),
}
WORKS: dict[str, tuple[str, str]] = {
    "long_result": ("return 'x' * 5_000_000", r"^x{100000}\n… \(cut here; 4,900,000 more"),
    "flood": (
        (
            "for _ in range(40_000):\n    print('flood ' * 20)\n"
            "sys.stderr.write('y' * 2_000_000)\nos.write(1, b'\\xff\\x1b[2J' * 100_000)\n"
            "return 'dry'"
        ),
        "dry",
    ),
    "children": (
        (
            "for _ in range(5):\n    if os.fork() == 0:\n        time.sleep(600)\n"
            "        os._exit(0)\nimport subprocess\nsubprocess.Popen(['sleep', '600'])\n"
            "return 'left them'"
        ),
        "left them",
    ),
    "zombies": (
        "for _ in range(20):\n    if os.fork() == 0:\n        os._exit(0)\nreturn 'forked'",
        "forked",
    ),
    "elsewhere": (
        (
            "import locale\nos.chdir('/')\nos.environ.clear()\nos.umask(0o777)\n"
            "locale.setlocale(locale.LC_ALL, 'C')\n"
            "for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):\n"
            "    signal.signal(number, lambda *_: os._exit(9))\n"
            "signal.alarm(3)\nreturn os.getcwd()"
        ),
        "^/$",
    ),
    "close_streams": ("sys.stdout.close()\nsys.stderr.close()\nreturn 'closed'", "closed"),
    "close_output": ("os.close(1)\nos.close(2)\nreturn 'closed'", "closed"),
    "at_exit": (
        (
            "import atexit, threading\natexit.register(time.sleep, 600)\n"
            "threading.Thread(target=time.sleep, args=(600,)).start()\nreturn 'later'"
        ),
        "later",
    ),
    "twin": ("os.fork()\nreturn 'twice'", ""),
    "late_writer": (
        (
            "import threading\n"
            "def write():\n    time.sleep(0.3)\n    for number in range(3, 51):\n        try:\n"
            "            os.write(number, b'late garbage')\n        except OSError:\n"
            "            pass\nthreading.Thread(target=write).start()\nreturn 'soon'"
        ),
        "soon",
    ),
}
HEAD = "import os\nimport signal\nimport sys\nimport time\n"
FINE = '''
import asyncio


class Odd(BaseException):
    pass


def fine(number: int) -> str:
    """Do what a tool should.

    Args:
        number: What to say.
    """
    print("fine", number)
    print("fine", number, file=sys.stderr, flush=True)
    return f"fine {number}, {os.path.basename(os.getcwd())}"


async def leave_task() -> str:
    """Cancel everything in sight."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)
    return "?"


async def raise_odd() -> str:
    """Raise what nobody catches."""
    raise Odd


async def stop_loop() -> str:
    """Stop the loop under its own feet."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)
    return "?"
'''
ASYNC = {"leave_task": "CancelledError", "raise_odd": "Odd", "stop_loop": "RuntimeError"}
EXPECTED = {
    **{name: (False, said) for name, (_, said) in FAILS.items()},
    **{name: (False, said) for name, said in ASYNC.items()},
    **{name: (True, said) for name, (_, said) in WORKS.items()},
}
ENDLESS = ("loop", "loop_in_c", "flood_for_ever", "stop_itself", "block_signals")
# Both outcomes are sound: what counts is that there is one, and that nothing else is hurt.
EITHER = {"bad_text", "twin"}


def write_hostile(folder: Path, **timeouts: float) -> None:
    bodies = {name: body for name, (body, _) in (FAILS | WORKS).items()}
    functions = "".join(function(name, body) for name, body in bodies.items())
    names = f"__all__ = {[*EXPECTED, 'fine']!r}\n__timeouts__ = {timeouts!r}\n"
    write_tools(folder, init=HEAD + FINE + functions + names)


def of_processes(name: str) -> dict[int, bytes]:
    """What a file of ``/proc`` says about each process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            found[int(place.name)] = (place / name).read_bytes()
    return found


def marked(mark: str) -> list[int]:
    """Processes with the mark in their environment; zombies have none."""
    found = of_processes("environ")
    return [pid for pid, content in found.items() if f"{MARK}={mark}".encode() in content]


def zombies_of(parent: int) -> list[int]:
    """Ended children that nobody has reaped."""
    found = {pid: stat.rpartition(b")")[2].split() for pid, stat in of_processes("stat").items()}
    return [
        pid for pid, (state, ppid, *_) in found.items() if (state, ppid) == (b"Z", b"%d" % parent)
    ]


def open_files(pid: int) -> int:
    """Count them; 0 where only root may, since nobody else may look into the server."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except PermissionError:
        return 0


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """In the environment of the server and of everything that it starts."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc")
    found = secrets.token_hex(8)
    monkeypatch.setenv(MARK, found)
    return found


@asynccontextmanager
async def hostile_server(folder: Path, mark: str, **options: Any) -> AsyncIterator[Server]:
    """A server after whose stop no process is left."""
    options = {"tool_timeout_seconds": TIMEOUT, "tool_memory_mb": MEMORY_MB, **options}
    options["tool_env"] = MARK
    async with running_server(data_dir=folder, **options) as server:
        yield server
        assert await server.stop() == 0, server.log[-3000:]
    await until(lambda: not marked(mark))


async def results_of(
    server: Server, ollama: FakeOllama, calls: list[tuple[str, dict[str, Any]]], session: str = ""
) -> list[dict[str, Any]]:
    """What came of the calls of one reply, in call order."""
    tools = sorted({name for name, _ in calls})
    own = secrets.token_hex(4)
    policy = {"tools": tools, "execution_policy": "never_confirm"}
    session = session or await server.new_session(tool_settings=policy)
    ollama.reply(
        tool_calls=[{"name": name, "arguments": arguments} for name, arguments in calls], match=own
    )
    ollama.reply(["Well."], match=own)
    seen: list[str] = []
    found: dict[int, dict[str, Any]] = {}
    with anyio.fail_after(MAX_CALL):
        async for event in server.stream(f"/chat/{session}/stream", {"message": own}):
            seen.append(event.event)
            if event.event == "tool_result":
                found[event.data["call_index"]] = event.data
    assert seen[-3:] == ["content_delta", "message_complete", "done"], (tools, seen)
    assert sorted(found) == list(range(len(calls))), tools
    return [found[index] for index in sorted(found)]


async def others_talk(server: Server, ollama: FakeOllama, over: asyncio.Event) -> int:
    """Turns of another session, one after another; each must be whole."""
    session = await server.new_session()
    turns = 0
    while not over.is_set():
        ollama.reply(WORDS, delay=0.02, match="the other one")
        body = {"message": "the other one"}
        path = f"/chat/{session}/stream"
        events = [event async for event in server.stream(path, body)]
        said = [event.data["content"] for event in events if event.event == "content_delta"]
        assert "".join(said) == "".join(WORDS)
        assert [event.event for event in events[-2:]] == ["message_complete", "done"]
        turns += 1
    return turns


async def health(server: Server, over: asyncio.Event) -> int:
    """Answers of ``/health``, one after another; each must be good."""
    answers = 0
    async with aiohttp.ClientSession(connector=connector()) as http:
        while not over.is_set():
            async with http.get(f"{server.api}/health") as response:
                assert response.status == 200
                assert (await response.json())["status"] == "ok"
            answers += 1
            await anyio.sleep(0.05)
    return answers


def complaints(name: str, result: dict[str, Any]) -> list[str]:
    """What is wrong with the result of a hostile tool."""
    success, said = EXPECTED[name]
    text = result["result"] if result["success"] else result["error_message"]
    found = []
    if result["success"] is not success and name not in EITHER:
        found.append(f"{name}: success is {result['success']}: {text[:300]!r}")
    elif not re.search(said, text):
        found.append(f"{name}: {text[:300]!r}")
    if len(text) > 110_000:
        found.append(f"{name}: {len(text)} characters")
    return found


async def test_whatever_a_tool_does_hurts_its_own_call_only(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    ollama.one_at_a_time = False
    write_hostile(tmp_path / "tools", **dict.fromkeys(ENDLESS, SPINNING))
    wrong: list[str] = []
    async with hostile_server(tmp_path, mark, ollama=ollama) as server:
        assert (await server.get("/tools"))[1]["problems"] == []
        [result] = await results_of(server, ollama, [("fine", {"number": 0})])
        assert result["result"] == f"fine 0, {tmp_path.name}"
        before = open_files(server.pid)
        over = asyncio.Event()
        talking = asyncio.ensure_future(others_talk(server, ollama, over))
        healthy = asyncio.ensure_future(health(server, over))
        for name in EXPECTED:
            calls = [("fine", {"number": 1}), (name, {}), ("fine", {"number": 2})]
            one, result, two = await results_of(server, ollama, calls)
            wrong += complaints(name, result)
            texts = [one["result"], two["result"]]
            if texts != [f"fine 1, {tmp_path.name}", f"fine 2, {tmp_path.name}"]:
                wrong.append(f"{name} hurt a call beside it: {one} {two}")
            for number in range(3):
                [after] = await results_of(server, ollama, [("fine", {"number": number})])
                if after["result"] != f"fine {number}, {tmp_path.name}":
                    wrong.append(f"{name} hurt call {number} after it: {after}")
            for task in (talking, healthy):
                if task.done():
                    await task
        over.set()
        assert await talking > 3
        assert await healthy > 3
        await until(lambda: not zombies_of(server.pid))
        assert open_files(server.pid) < before + 60  # workers that are still warm
        assert len(server.log) < 2_000_000
        assert server.process.returncode is None
    assert not list(tmp_path.rglob("core*"))
    assert not wrong, "\n".join(wrong)


VALIDATOR = '''
from pydantic import BaseModel, field_validator


class Picky(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        while number == 0:
            open("hanging", "w").close()
            time.sleep(0.1)
        if number == 1:
            os._exit(4)
        if number == 2:
            raise KeyboardInterrupt
        return number


def pick(one: Picky) -> str:
    """Pick one.

    Args:
        one: Which.
    """
    return f"picked {one.number}"
'''


async def test_arguments_that_are_never_checked_hold_up_no_other_conversation(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    ollama.one_at_a_time = False
    lists = "__all__ = ['fine', 'pick']\n__timeouts__ = {'pick': 15}\n"
    write_tools(tmp_path / "tools", init=HEAD + FINE + VALIDATOR + lists)
    async with hostile_server(tmp_path, mark, ollama=ollama) as server:

        async def pick(number: int) -> dict[str, Any]:
            arguments = {"one": {"number": number}}
            [result] = await results_of(server, ollama, [("pick", arguments)])
            return result

        assert (await pick(7))["result"] == "picked 7"
        assert "exit code 4" in (await pick(1))["error_message"]
        assert "KeyboardInterrupt" in (await pick(2))["error_message"]
        hanging = [asyncio.ensure_future(pick(0)) for _ in range(3)]
        await until((tmp_path / "hanging").exists)
        [result] = await results_of(server, ollama, [("fine", {"number": 1})])
        assert result["result"] == f"fine 1, {tmp_path.name}"
        assert not any(task.done() for task in hanging)
        for result in await asyncio.gather(*hanging):
            assert "took longer than 15 seconds" in result["error_message"]


async def test_a_tool_that_deletes_its_folder_is_gone_and_may_come_back(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    body = "import shutil\nshutil.rmtree(os.path.dirname(__file__))\nreturn 'gone'"
    code = HEAD + function("delete", body) + FINE + "__all__ = ['delete', 'fine']\n"
    write_tools(tmp_path / "tools", init=code)
    async with hostile_server(tmp_path, mark, ollama=ollama) as server:
        policy = {"tools": ["delete", "fine"], "execution_policy": "never_confirm"}
        session = await server.new_session(tool_settings=policy)
        for _ in range(2):
            calls = [("delete", {}), ("fine", {"number": 1})]
            [result, _] = await results_of(server, ollama, calls, session)
            assert result["result"] == "gone"
            [result] = await results_of(server, ollama, [("fine", {"number": 1})], session)
            assert result["code"] == "TOOL_NOT_FOUND"
            write_tools(tmp_path / "tools", init=code)
            [result] = await results_of(server, ollama, [("fine", {"number": 1})], session)
            assert result["result"] == f"fine 1, {tmp_path.name}"


# Lines of a file, and the problem that is then told, if any.
IMPORTS = {
    "os._exit(7)": "exit code 7",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "os.closerange(0, 51)": "connection|ended",
    "held = [bytearray(10**6) for _ in range(10**4)]": "(?i)memory",
    "while os.fork(): break\nelse: time.sleep(600)": "",
    "print('flood ' * 10**6)\nsys.stdout = None\nsys.modules.clear()": "KeyError",
}


async def test_what_a_file_does_when_it_is_imported_hurts_no_server(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    write_tools(tmp_path / "tools", init=HEAD + FINE + "__all__ = ['fine']\n")
    bad = tmp_path / "tools" / "bad"
    async with hostile_server(tmp_path, mark, ollama=ollama) as server:
        for line, reason in IMPORTS.items():
            write_tools(bad, init=f"{HEAD}{line}\n__all__ = []\n")
            status, listed = await server.get("/tools")
            assert status == 200, line
            assert re.search(reason, str(listed["problems"])), (line, listed["problems"])
            assert bool(listed["problems"]) is bool(reason), (line, listed["problems"])
            session = await server.new_session()
            path, body = f"/chat/{session}/stream", {"message": "Hello."}
            assert [event.event async for event in server.stream(path, body)][-1] == "done", line
            shutil.rmtree(bad)
            [result] = await results_of(server, ollama, [("fine", {"number": 1})])
            assert result["result"] == f"fine 1, {tmp_path.name}", line


async def test_a_file_that_never_ends_its_import_holds_up_no_other_conversation(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    endless = f"open({str(tmp_path / 'loads')!r}, 'w').close()\nwhile True:\n    time.sleep(0.1)\n"
    write_tools(tmp_path / "tools", init=HEAD + endless)
    ollama.one_at_a_time = False
    async with hostile_server(tmp_path, mark, ollama=ollama) as server:
        over = asyncio.Event()
        async with aiohttp.ClientSession(connector=connector()) as http:

            async def listed() -> Any:
                async with http.get(f"{server.api}/tools") as response:
                    return await response.json()

            loading = asyncio.ensure_future(listed())
            talking = asyncio.ensure_future(others_talk(server, ollama, over))
            healthy = asyncio.ensure_future(health(server, over))
            body = await loading
            over.set()
            assert await talking > 3
            assert await healthy > 3
            assert body["tools"] == {}
            assert "did not load within" in body["problems"][0]["reason"]
            (tmp_path / "loads").unlink()
            assert (await listed())["problems"] == body["problems"]
            assert not (tmp_path / "loads").exists()  # it is not tried again
        write_tools(tmp_path / "tools", init=HEAD + FINE + "__all__ = ['fine']\n")
        [result] = await results_of(server, ollama, [("fine", {"number": 1})])
        assert result["result"] == f"fine 1, {tmp_path.name}"


@pytest.mark.usefixtures("fresh_servers")  # the server is found by its environment, too
async def test_a_server_stops_in_time_while_hostile_tools_run(
    tmp_path: Path, ollama: FakeOllama, mark: str
) -> None:
    write_hostile(tmp_path / "tools")
    ollama.one_at_a_time = False
    names = ["loop", "loop_in_c", "block_signals", "stop_itself", "children", "at_exit"]
    async with hostile_server(
        tmp_path, mark, ollama=ollama, tool_timeout_seconds=60, tool_workers=12
    ) as server:  # a session alone has half of the processes: all six tools run
        policy = {"tools": names, "execution_policy": "never_confirm"}
        session = await server.new_session(tool_settings=policy)
        ollama.reply(tool_calls=[{"name": name, "arguments": {}} for name in names])
        path = f"{server.api}/chat/{session}/stream"

        async def read() -> str:
            async with server.http.post(path, json={"message": "Go."}) as response:
                return await response.text()

        running = asyncio.ensure_future(read())
        # The server, six workers, and what one of them has left behind.
        await until(lambda: len(marked(mark)) >= 1 + 6 + 6)
        assert await server.stop() == 0, server.log[-3000:]
        with anyio.fail_after(30):
            text = await running
        assert re.findall("event: (.*)", text)[-2:] == ["error", "done"]
