"""What every loader of tools promises, wherever the functions run."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from mochi_server.tools.base import InvalidArguments, ToolFailed
from mochi_server.tools.folder.package import load_package
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.functions.registered import RegisteredFunctions
from mochi_server.tools.loading import FolderSpec, LoadedFolder, ToolLoader
from mochi_server.tools.process.confinement import ToolConfinement
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.tool_folders import tool_folder
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = '''
    import asyncio
    import threading
    import time
    from pathlib import Path

    __all__ = [
        "add", "pair", "shout", "count", "loop_is_kept", "raises", "raises_async", "unprintable",
        "huge", "meet", "wait", "wait_async", "cancel_itself", "where", "strange",
    ]

    calls = 0
    the_loop = None

    class Own(Exception):
        def __str__(self):
            raise SystemExit(1)

    class Unprintable:
        def __str__(self):
            raise ValueError("no words")

    ERRORS = {
        error.__name__: error
        for error in (
            ValueError, SystemExit, KeyboardInterrupt, StopIteration, StopAsyncIteration,
            GeneratorExit, RecursionError, asyncio.CancelledError, TimeoutError, Own,
        )
    }

    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    def pair(a: str) -> dict:
        """Pair."""
        return {"a": a, "b": [1, None]}

    async def shout(text: str) -> str:
        """Shout."""
        await asyncio.sleep(0)
        return text.upper()

    def count() -> int:
        """Count calls."""
        global calls
        calls += 1
        return calls

    async def loop_is_kept() -> bool:
        """Whether this is the loop of the first call."""
        global the_loop
        the_loop = the_loop or asyncio.get_running_loop()
        return the_loop is asyncio.get_running_loop()

    def raises(name: str) -> str:
        """Raise."""
        raise ERRORS[name]("no such luck")

    async def raises_async(name: str) -> str:
        """Raise."""
        raise ERRORS[name]("no such luck")

    async def cancel_itself() -> str:
        """Cancel."""
        asyncio.current_task().cancel()
        await asyncio.sleep(10)
        return "no"

    def unprintable() -> object:
        """Return what has no text."""
        return Unprintable()

    def strange() -> str:
        """Return text that no encoding knows."""
        return "a\\udc80b\\0"

    def huge() -> str:
        """Return too much."""
        return "x" * (17 * 1024 * 1024)

    def meet(folder: str, me: str, other: str) -> str:
        """Return when the other is there as well."""
        Path(folder, me).touch()
        while not Path(folder, other).exists():
            time.sleep(0.005)
        return "met"

    def wait(folder: str) -> str:
        """Wait for ever."""
        Path(folder, "waiting").touch()
        threading.Event().wait(300)
        return "no"

    async def wait_async(folder: str) -> str:
        """Wait for ever."""
        Path(folder, "waiting").touch()
        await asyncio.sleep(300)
        return "no"

    def where() -> str:
        """Say the name of the module's folder."""
        return Path(__file__).parent.name
'''


def folder_loader(confinement: ToolConfinement | None = None) -> ToolLoader:
    return ProcessLoader(WorkerOptions(workers=3, start_seconds=100, confinement=confinement))


@asynccontextmanager
async def loaded(kind: str, path: Path) -> AsyncIterator[LoadedFolder]:
    """The functions in processes, or registered by the program in which they are."""
    if kind == "registered":
        package = load_package(tool_folder(path, TOOLS), generation="contract")
        assert not package.description.problems
        folder = RegisteredFunctions(package.functions, folder=package.description.folder)
        yield folder
        with anyio.fail_after(30):
            await folder.aclose()
        package.forget()
        return
    confinement, code = None, TOOLS
    if kind == "confined":
        code += f"\n    __sandbox__ = {{'writable': ['{path.parent.parent}']}}\n"
        confinement = ToolConfinement(sandbox=bubblewrap_or_skip(), data=path.parent)
    loader = folder_loader(confinement)
    [loaded] = await loader.load([tool_folder(path, code)])
    assert not loaded.description.problems
    yield loaded
    with anyio.fail_after(30):
        await loader.aclose()


def tool_of(folder: LoadedFolder, name: str) -> FunctionTool:
    [details] = [tool for tool in folder.description.tools if tool.name == name]
    return FunctionTool(details, folder, source="directory", default_timeout=None)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["registered", "processes", "confined"],
    name="folder",
)
async def common(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LoadedFolder]:
    """One for all tests that do not close it: a process for each would be their main cost."""
    async with loaded(request.param, tmp_path_factory.mktemp("tools") / "first") as folder:
        yield folder


@pytest_asyncio.fixture(loop_scope="module")
async def loader() -> AsyncIterator[ToolLoader]:
    loader = folder_loader()
    yield loader
    with anyio.fail_after(30):
        await loader.aclose()


async def test_a_folder_is_described_with_all_its_tools(folder: LoadedFolder):
    tools = {tool.name: tool for tool in folder.description.tools}

    assert list(tools)[:3] == ["add", "pair", "shout"]
    assert tools["add"].parameters["required"] == ["a"]
    assert tools["add"].line > 0
    assert "return a + b" in tools["add"].source
    assert tools["shout"].is_async
    assert not tools["add"].is_async


async def test_arguments_are_coerced_or_refused(folder: LoadedFolder):
    assert await tool_of(folder, "add").validate({"a": "3"}) == {"a": 3}
    with pytest.raises(InvalidArguments, match="a"):
        await tool_of(folder, "add").validate({"a": "three"})
    with pytest.raises(InvalidArguments, match="a"):
        await folder.call("add", {})
    with pytest.raises(InvalidArguments, match="text"):
        await folder.call("shout", {})


async def test_results_are_text(folder: LoadedFolder):
    assert await folder.call("add", {"a": "41"}) == "42"
    assert await folder.call("pair", {"a": "ü"}) == '{"a": "ü", "b": [1, null]}'
    assert await folder.call("shout", {"text": "straße"}) == "STRASSE"
    assert await folder.call("strange", {}) == "a?b\0"


async def test_modules_keep_what_they_know_between_calls(folder: LoadedFolder):
    before = int(await folder.call("count", {}))
    after = [int(await folder.call("count", {})) for _ in range(3)]
    assert after == [before + 1, before + 2, before + 3]
    kept = await folder.call("loop_is_kept", {})
    assert await folder.call("loop_is_kept", {}) == kept


@pytest.mark.parametrize("tool", ["raises", "raises_async"])
@pytest.mark.parametrize(
    "name",
    [
        "ValueError",
        "SystemExit",
        "KeyboardInterrupt",
        "StopIteration",
        "StopAsyncIteration",
        "GeneratorExit",
        "RecursionError",
        "CancelledError",
        "TimeoutError",
    ],
)
async def test_whatever_is_raised_fails_that_call_only(folder: LoadedFolder, tool: str, name: str):
    # Python itself makes a RuntimeError of a StopIteration that leaves a coroutine.
    with (
        anyio.fail_after(30),
        pytest.raises(ToolFailed, match=r"no such luck|raised StopIteration"),
    ):
        await folder.call(tool, {"name": name})

    assert await folder.call("add", {"a": 1}) == "2"


async def test_a_failure_is_short_for_the_model_and_whole_in_the_log(
    folder: LoadedFolder, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING), pytest.raises(ToolFailed) as raised:
        await folder.call("raises", {"name": "ValueError"})

    assert str(raised.value) == "ValueError: no such luck"
    assert "The tool raises failed: ValueError: no such luck" in caplog.text
    assert "Traceback (most recent call last)" in caplog.text
    assert "__init__.py" in caplog.text


async def test_what_has_no_text_is_a_failure(folder: LoadedFolder):
    with pytest.raises(ToolFailed, match="no words"):
        await folder.call("unprintable", {})
    with pytest.raises(ToolFailed, match="Own"):
        await folder.call("raises", {"name": "Own"})


async def test_a_result_of_many_megabytes_is_a_failure(folder: LoadedFolder):
    with pytest.raises(ToolFailed, match="larger than 16 MiB"):
        await folder.call("huge", {})

    assert await folder.call("add", {"a": 1}) == "2"


async def test_a_task_that_cancels_itself_does_not_cancel_ours(folder: LoadedFolder):
    with anyio.fail_after(30), pytest.raises(ToolFailed, match="CancelledError"):
        await folder.call("cancel_itself", {})


async def test_calls_run_beside_each_other(folder: LoadedFolder, tmp_path: Path):
    """Each returns only when the other has begun."""
    with anyio.fail_after(30):
        one, two = await asyncio.gather(
            folder.call("meet", {"folder": str(tmp_path), "me": "one", "other": "two"}),
            folder.call("meet", {"folder": str(tmp_path), "me": "two", "other": "one"}),
        )

    assert one == two == "met"


async def test_more_calls_than_workers_wait_for_their_turn(folder: LoadedFolder):
    with anyio.fail_after(30):
        results = await asyncio.gather(*(folder.call("add", {"a": n}) for n in range(32)))

    assert results == [str(n + 1) for n in range(32)]


@pytest.mark.parametrize("tool", ["wait", "wait_async"])
async def test_a_cancelled_call_is_given_up_at_once(
    folder: LoadedFolder, tmp_path: Path, tool: str
):
    call = asyncio.get_running_loop().create_task(folder.call(tool, {"folder": str(tmp_path)}))
    await until((tmp_path / "waiting").exists)

    call.cancel()
    with anyio.fail_after(30), pytest.raises(asyncio.CancelledError):
        await call

    with anyio.fail_after(30):
        assert await folder.call("add", {"a": 1}) == "2"


async def test_arguments_are_looked_at_while_calls_run(folder: LoadedFolder, tmp_path: Path):
    calls = [folder.call("wait", {"folder": str(tmp_path)}) for _ in range(3)]
    running = asyncio.gather(*calls)
    await until((tmp_path / "waiting").exists)

    with anyio.fail_after(30):
        assert await tool_of(folder, "add").validate({"a": "5"}) == {"a": 5}

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_old_generation_keeps_its_code(loader: ToolLoader, tmp_path: Path):
    code = """
        __all__ = ["say"]

        def say() -> str:
            "Say."
            return {word!r}
    """
    [old] = await loader.load([tool_folder(tmp_path, code.format(word="old"))])
    [new] = await loader.load([tool_folder(tmp_path, code.format(word="a newer one"))])

    assert await new.call("say", {}) == "a newer one"
    assert await old.call("say", {}) == "old"
    await old.aclose()
    assert await new.call("say", {}) == "a newer one"


async def test_a_tool_that_is_not_there_is_a_failure(folder: LoadedFolder):
    with pytest.raises(ToolFailed, match="'nothing'"):
        await folder.call("nothing", {})


@pytest.mark.parametrize("tool", ["wait", "wait_async"])
@pytest.mark.parametrize("kind", ["registered", "processes"])
async def test_closing_a_folder_fails_its_running_calls(kind: str, tmp_path: Path, tool: str):
    async with loaded(kind, tmp_path / "first") as folder:
        call = asyncio.get_running_loop().create_task(folder.call(tool, {"folder": str(tmp_path)}))
        await until((tmp_path / "waiting").exists)

        with anyio.fail_after(30):
            await folder.aclose()
            with pytest.raises(ToolFailed, match="closed"):
                await call

        await folder.aclose()
        with pytest.raises(ToolFailed, match="closed"):
            await folder.call("add", {"a": 1})


async def test_a_closed_loader_loads_nothing(loader: ToolLoader, tmp_path: Path):
    await loader.aclose()
    await loader.aclose()

    [folder] = await loader.load([tool_folder(tmp_path, TOOLS)])

    assert not folder.description.tools
    assert "closed" in folder.description.problems[0].reason


async def test_closing_does_not_wait_for_a_load(loader: ToolLoader, tmp_path: Path):
    spec = tool_folder(
        tmp_path,
        """
        import threading, pathlib
        pathlib.Path(__file__).with_name("began").touch()
        threading.Event().wait(60)
        """,
    )
    load = asyncio.get_running_loop().create_task(loader.load([spec]))
    await until((tmp_path / "began").exists)

    with anyio.fail_after(30):
        await loader.aclose()
        [folder] = await load

    assert "closed" in folder.description.problems[0].reason


async def test_many_folders_are_loaded_in_order(loader: ToolLoader, tmp_path: Path):
    specs = [tool_folder(tmp_path / name, TOOLS) for name in ("a", "b", "c")]
    specs.insert(1, FolderSpec(path=tmp_path / "missing"))

    folders = await loader.load(specs)

    assert [Path(each.description.folder).name for each in folders] == ["a", "missing", "b", "c"]
    assert [len(each.description.tools) for each in folders] == [15, 0, 15, 15]
    assert not any(each.description.problems for each in folders)
    assert [await folders[n].call("where", {}) for n in (0, 2, 3)] == ["a", "b", "c"]


async def test_a_folder_that_cannot_be_imported_hides_no_other(loader: ToolLoader, tmp_path: Path):
    specs = [
        tool_folder(tmp_path / "exits", "raise SystemExit(3)"),
        tool_folder(tmp_path / "torn", "def f(:"),
        tool_folder(tmp_path / "good", TOOLS),
    ]

    exits, torn, good = await loader.load(specs)

    assert "SystemExit" in exits.description.problems[0].reason
    assert torn.description.problems[0].line == 1
    assert await good.call("add", {"a": 1}) == "2"
