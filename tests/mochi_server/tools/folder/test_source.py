"""A folder of tools as a source: changes, reloads, and who holds what meanwhile."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mochi_server.agents.discovery import AGENT_TOOL
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.base import ToolBegun, ToolContext, ToolFailed, ToolOutput
from mochi_server.tools.folder import snapshot
from mochi_server.tools.folder.snapshot import DEEPEST, check_folder, write_stamp
from mochi_server.tools.folder.source import DirectorySource
from mochi_server.tools.loading import FolderSpec, ToolLoader
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.tools import function, noting, write_tools
from tests.support.turns import bench

CONTEXT = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")
WAIT = """
import pathlib, time
def wait_for(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.005)
"""


def package(*names: str, **texts: str) -> str:
    """An ``__init__.py`` with a function for each name; with a text, that is what it returns."""
    bodies = {name: f"return {texts.get(name, name)!r}" for name in (*names, *texts)}
    functions = "".join(function(name, body) for name, body in bodies.items())
    return f"{functions}\n__all__ = {list(bodies)}\n"


@asynccontextmanager
async def source_of(folder, loader=None, **options):
    loader = loader or ProcessLoader(WorkerOptions(workers=2))
    source = DirectorySource(FolderSpec(path=folder), loader=loader, default_timeout=60, **options)
    try:
        with anyio.fail_after(30):
            yield source
    finally:
        with anyio.fail_after(30):
            await source.aclose()
            await loader.aclose()


@pytest.fixture
def loader():
    return ProcessLoader(WorkerOptions(workers=2, memory_mb=1024))


async def names(source):
    return [tool.name for tool in await source.tools()]


async def call(tool, **arguments):
    told = [step async for step in tool.run(arguments, CONTEXT)]
    steps = [step for step in told if not isinstance(step, ToolBegun)]
    [output] = steps
    assert isinstance(output, ToolOutput)
    return output.content


async def found(source, name="add"):
    return {tool.name: tool for tool in await source.tools()}[name]


async def until(condition, *, collect=True):
    with anyio.fail_after(30):
        while not condition():
            if collect:
                gc.collect()
            await anyio.sleep(0.01)


# What is a tool


async def test_names_that_the_server_uses_itself_are_problems(tmp_path, loader):
    """A tool in the place of another, or one that no route leads to, would only be missed."""
    taken = [AGENT_TOOL, "reload", "stats"]
    folder = write_tools(tmp_path / "tools", init=package("add", *taken))
    async with source_of(folder, loader) as source:
        assert await names(source) == ["add"]
        assert [problem.tool for problem in source.problems()] == taken
        assert all("the server uses itself" in each.reason for each in source.problems())
        assert {each.line for each in source.problems()} == {6, 10, 14}


async def test_a_folder_without_python_is_never_loaded(tmp_path):
    class NeverAsked(ToolLoader):
        async def load(self, folders):
            raise AssertionError(folders)

        async def aclose(self):
            pass

    async with source_of(tmp_path / "tools", NeverAsked()) as source:
        assert await source.tools() == ()
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "notes.txt").write_text("later")
        await source.reload()
        assert await source.tools() == ()
        assert (source.groups(), source.problems()) == ({}, ())


# Changes


async def test_every_kind_of_change_is_seen_by_the_next_look(tmp_path, loader):
    init = function("add", "return WORD", before="from .helper import WORD")
    folder = write_tools(tmp_path / "tools", init=f"{init}\n__all__ = ['add']")
    write_tools(folder, helper="WORD = 'one'\n")
    async with source_of(folder, loader) as source:
        assert await call(await found(source)) == "one"
        write_tools(folder, helper="WORD = 'two'\n")  # as long as before
        assert await call(await found(source)) == "two"
        write_tools(folder / "text", init=package("shout"))
        assert await names(source) == ["add", "shout"]
        assert dict(source.groups()) == {"text": ("shout",)}
        (folder / "__init__.py").unlink()
        (folder / "helper.py").unlink()
        assert await names(source) == ["shout"]


async def test_a_stamp_makes_every_source_that_looks_at_it_load_again(tmp_path):
    folder = write_tools(tmp_path / "tools", init=noting(tmp_path / "log") + package("add"))
    stamp = tmp_path / ".mochi" / "reload-tools"
    async with source_of(folder, stamp=stamp) as one, source_of(folder, stamp=stamp) as two:
        for source in (one, two, one, two):
            await source.tools()
        assert (tmp_path / "log").read_text() == "x" * 2
        write_stamp(stamp)
        for source in (one, two, one, two):
            await source.tools()
        assert (tmp_path / "log").read_text() == "x" * 4
        write_stamp(stamp)
        assert await names(one) == ["add"]
        assert (tmp_path / "log").read_text() == "x" * 5


# Callers at one time


async def test_callers_at_one_time_share_a_load(tmp_path):
    folder = write_tools(tmp_path / "tools", init=noting(tmp_path / "log") + package("add"))
    async with source_of(folder) as source:
        results = await asyncio.gather(*(source.tools() for _ in range(20)))
        assert all(result is results[0] for result in results)
        assert (tmp_path / "log").read_text() == "x"
        await asyncio.gather(*(source.reload() for _ in range(20)))
        assert (tmp_path / "log").read_text() == "xx"


def slow_package(tmp_path: Path, **texts: str) -> str:
    """A package whose import says that it has begun, and waits for a file."""
    begun = noting(tmp_path / "log")
    return WAIT + begun + f"wait_for({str(tmp_path / 'go')!r})\n" + package(**texts)


async def test_a_caller_that_is_cancelled_takes_the_load_from_nobody(tmp_path):
    folder = write_tools(tmp_path / "tools", init=slow_package(tmp_path, add="one"))
    async with source_of(folder) as source:
        leaves = asyncio.ensure_future(source.tools())
        stays = asyncio.ensure_future(source.tools())
        await until((tmp_path / "log").exists)
        leaves.cancel()
        await asyncio.wait({leaves})
        assert leaves.cancelled()
        (tmp_path / "go").touch()
        assert [tool.name for tool in await stays] == ["add"]
        assert (tmp_path / "log").read_text() == "x"


async def test_a_change_while_loading_is_seen_by_who_asks_after_it(tmp_path):
    folder = write_tools(tmp_path / "tools", init=slow_package(tmp_path, add="one"))
    async with source_of(folder) as source:
        early = asyncio.ensure_future(found(source))
        await until((tmp_path / "log").exists)
        write_tools(folder, init=slow_package(tmp_path, add="two"))
        late = asyncio.ensure_future(found(source))
        (tmp_path / "go").touch()
        assert await call(await early) == "one"
        assert await call(await late) == "two"
        assert (tmp_path / "log").read_text() == "xx"


async def test_a_reload_while_loading_loads_once_more(tmp_path):
    folder = write_tools(tmp_path / "tools", init=slow_package(tmp_path, add="one"))
    async with source_of(folder) as source:
        first = asyncio.ensure_future(source.tools())
        await until((tmp_path / "log").exists)
        again = [asyncio.ensure_future(source.reload()) for _ in range(3)]
        (tmp_path / "go").touch()
        await asyncio.gather(first, *again)
        assert (tmp_path / "log").read_text() == "xx"


async def test_a_load_that_fails_is_tried_again_by_the_next_caller(tmp_path, caplog):
    class Reluctant(ToolLoader):
        failures = 1

        async def load(self, folders):
            if self.failures:
                self.failures -= 1
                raise BlockingIOError("no more processes")
            return await inner.load(folders)

        async def aclose(self):
            await inner.aclose()

    inner = ProcessLoader()
    folder = write_tools(tmp_path / "tools", init=package("add"))
    async with source_of(folder, Reluctant()) as source:
        with pytest.raises(BlockingIOError):
            await source.tools()
        assert await names(source) == ["add"]
    assert "no more processes" in caplog.text


# Who holds what


async def test_a_tool_that_is_held_stays_as_it_was(tmp_path, loader):
    folder = write_tools(tmp_path / "tools", init=package(add="old"))
    async with source_of(folder, loader) as source:
        old = await found(source)
        write_tools(folder, init=package(add="new"))
        new = await found(source)
        await source.reload()
        assert [await call(old), await call(new), await call(await found(source))] == [
            "old",
            "new",
            "new",
        ]


async def test_a_running_call_ends_as_it_began_whatever_is_reloaded(tmp_path, loader):
    text = function(
        "add",
        f"""
import pathlib, time
pathlib.Path({str(tmp_path / "begun")!r}).touch()
while not pathlib.Path({str(tmp_path / "go")!r}).exists():
    time.sleep(0.005)
return "old"
""",
    )
    folder = write_tools(tmp_path / "tools", init=f"{text}\n__all__ = ['add']\n")
    async with source_of(folder, loader) as source:
        running = asyncio.ensure_future(call(await found(source)))
        await until((tmp_path / "begun").exists)
        write_tools(folder, init=package(add="new"))
        for _ in range(3):
            await source.reload()
        gc.collect()
        assert await call(await found(source)) == "new"
        (tmp_path / "go").touch()
        assert await running == "old"
        await until(lambda: len(source._keeper._open) == 1)


async def test_an_old_state_is_closed_when_nobody_holds_its_tools(tmp_path, loader):
    folder = write_tools(tmp_path / "tools", init=package("add"))
    async with source_of(folder, loader) as source:
        held = await source.tools()
        await source.reload()
        await source.reload()
        await until(lambda: len(source._keeper._open) == 2)
        assert await call(held[0]) == "add"
        del held
        await until(lambda: len(source._keeper._open) == 1)
        assert await call(await found(source)) == "add"


async def test_a_turn_that_has_ended_holds_no_old_state(tmp_path, ollama):
    folder = write_tools(tmp_path / "tools", init=package(add="one"))
    settings = ToolSettings(tools=["add"], execution_policy=ToolExecutionPolicy.NEVER_CONFIRM)
    gc.disable()  # nothing may wait for a search for garbage, which a server makes rarely
    try:
        async with bench(tmp_path, ollama) as one:
            source = one.runtime.tools.sources[0]
            session = await one.session(tool_settings=settings)
            for text in ("one", "two"):
                write_tools(folder, init=package(add=text))
                ollama.reply(tool_calls=[{"name": "add", "arguments": {}}])
                results = [event.payload() for event in await one.turn(session)]
                assert text in [data.get("result") for data in results]
                await one.ended()
            # Frames of Python 3.10 hold each other after a cancellation in them.
            old = sys.version_info < (3, 11)
            await until(lambda: len(source._keeper._open) == 1, collect=old)
    finally:
        gc.enable()


async def test_a_state_may_be_dropped_in_any_thread(tmp_path):
    folder = write_tools(tmp_path / "tools", init=package("add"))
    async with source_of(folder) as source:
        held = [await source.tools()]
        await source.reload()
        assert len(source._keeper._open) == 2
        await anyio.to_thread.run_sync(held.clear)
        await until(lambda: len(source._keeper._open) == 1)


async def test_after_the_end_nothing_is_loaded_and_held_tools_fail(tmp_path, loader):
    folder = write_tools(tmp_path / "tools", init=noting(tmp_path / "log") + package("add"))
    async with source_of(folder, loader) as source:
        tool = await found(source)
        await source.aclose()
        await source.aclose()
        imports = (tmp_path / "log").read_text()
        await source.reload()
        assert (tmp_path / "log").read_text() == imports
        with pytest.raises(ToolFailed):
            await call(tool)


@pytest.mark.usefixtures("fresh_tools")
async def test_tools_that_could_not_be_loaded_for_want_of_a_process_come_back(
    tmp_path, monkeypatch
):
    """Nothing in the folder has changed, and nothing in it was to blame."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        '__all__ = ["add"]\n\n\ndef add(a: int) -> str:\n    """Add."""\n    return str(a + 1)\n'
    )
    loader = ProcessLoader()
    source = DirectorySource(FolderSpec(path=folder), loader=loader, default_timeout=10)
    try:
        with monkeypatch.context() as broken:
            broken.setattr("sys.executable", str(tmp_path / "no-such-python"))
            assert await names(source) == []
            [problem] = source.problems()
            assert "cannot be started" in problem.reason
        assert await names(source) == ["add"]
        assert source.problems() == ()
    finally:
        await source.aclose()
        await loader.aclose()


# Snapshots, by which a change is seen


def test_a_snapshot_sees_files_and_no_caches(tmp_path):
    folder = write_tools(tmp_path / "tools", init="")
    first = check_folder(folder)
    assert not first.is_empty
    for name in ("__pycache__", ".git", ".venv", "venv", "site-packages", "node_modules"):
        write_tools(folder / name, init="")
    (folder / "data.json").write_text("{}")
    assert check_folder(folder) == first
    write_tools(folder / "sub" / "below", init="")
    assert check_folder(folder) != first


def test_a_snapshot_sees_a_file_that_was_put_in_place_of_another(tmp_path):
    folder = write_tools(tmp_path / "tools", init="A = 1\n")
    place, times = folder / "__init__.py", (1_700_000_000, 1_700_000_000)
    os.utime(place, times)
    first = check_folder(folder)
    (folder / "new").write_text("A = 2\n")
    os.utime(folder / "new", times)
    (folder / "new").replace(place)
    assert check_folder(folder) != first


def test_a_snapshot_ends_where_links_go_round_in_a_circle(tmp_path):
    folder = write_tools(tmp_path / "tools", init="")
    for name in ("one", "two"):
        (folder / name).symlink_to(folder)
    (folder / "nowhere.py").symlink_to(folder / "missing")
    assert check_folder(folder) == check_folder(folder)


def test_a_snapshot_is_bounded_in_depth(tmp_path):
    folder = deep = write_tools(tmp_path / "tools", init="")
    for number in range(DEEPEST + 1):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    first = check_folder(folder)
    write_tools(deep, init="")
    assert check_folder(folder) == first
    write_tools(deep.parent, init="")
    assert check_folder(folder) != first


def test_a_snapshot_is_bounded_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_ENTRIES", 20)
    for number in range(30):
        (tmp_path / f"m{number}.py").touch()
    changes = 0
    for place in tmp_path.iterdir():
        before = check_folder(tmp_path)
        place.write_text("A = 1\n")
        changes += check_folder(tmp_path) != before
    assert changes == 20


def test_a_file_instead_of_a_folder_is_left_to_the_loader(tmp_path):
    (tmp_path / "tools").write_text("")
    assert check_folder(tmp_path / "missing").is_empty
    assert not check_folder(tmp_path / "tools").is_empty


def test_two_stamps_are_never_taken_for_one(tmp_path):
    stamp = tmp_path / ".mochi" / "reload-tools"
    snapshots = [check_folder(tmp_path, stamp)]
    for _ in range(20):
        write_stamp(stamp)
        snapshots.append(check_folder(tmp_path, stamp))
    assert all(one != two for one, two in itertools.pairwise(snapshots))
