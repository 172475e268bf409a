"""Tools in threads: what cannot be stopped is counted, and holds up nothing."""

import asyncio
import decimal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import anyio
import pytest

from mochi_server.errors import JSONObject
from mochi_server.tools.base import ToolContext, ToolFailed
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.functions import threads
from mochi_server.tools.functions.threads import ThreadLoader
from tests.support.tool_folders import tool_folder, until

TOOLS = '''
    import asyncio
    import threading
    from pathlib import Path

    __all__ = ["block", "block_async", "greet", "main_thread"]

    def block(folder: str, name: str) -> str:
        """Wait until a file is there."""
        Path(folder, name).touch()
        while not Path(folder, "go").exists():
            threading.Event().wait(0.01)
        return "went"

    async def block_async(folder: str, name: str) -> str:
        """Wait until a file is there, whatever happens."""
        Path(folder, name).touch()
        while not Path(folder, "go").exists():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "went"

    def greet() -> str:
        """Greet."""
        return "hello"

    def main_thread() -> str:
        """Say."""
        return str(threading.current_thread() is threading.main_thread())
'''
ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("tool", ["block", "block_async"])
async def test_too_many_calls_that_do_not_stop_keep_new_ones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
):
    monkeypatch.setattr(threads, "MOST_GIVEN_UP", 3)
    loader = ThreadLoader()
    [folder] = await loader.load([tool_folder(tmp_path / "mine", TOOLS)])
    for name in ("a", "b", "c"):
        with anyio.move_on_after(30) as scope:
            call = asyncio.get_running_loop().create_task(
                folder.call(tool, {"folder": str(tmp_path), "name": name})
            )
            await until((tmp_path / name).exists)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert not scope.cancelled_caught

    with pytest.raises(ToolFailed, match="3 calls of tools do not stop"):
        await folder.call("greet", {})
    with pytest.raises(ToolFailed, match="3 calls of tools do not stop"):
        await folder.call(tool, {"folder": str(tmp_path), "name": "d"})
    assert not (tmp_path / "d").exists()

    (tmp_path / "go").touch()
    with anyio.fail_after(30):
        while True:
            try:
                assert await folder.call("greet", {}) == "hello"
                break
            except ToolFailed:
                await anyio.sleep(0.01)
    await loader.aclose()


async def test_functions_do_not_run_in_the_event_loop_s_thread(tmp_path: Path):
    loader = ThreadLoader()
    [folder] = await loader.load([tool_folder(tmp_path, TOOLS)])

    assert await folder.call("main_thread", {}) == "False"
    await loader.aclose()


async def test_functions_see_the_caller_s_context(tmp_path: Path):
    """The precision of decimal numbers is a context variable."""
    loader = ThreadLoader()
    code = """
        from decimal import Decimal
        __all__ = ["third", "third_async"]

        def third() -> str:
            "Divide."
            return str(1 / Decimal(3))

        async def third_async() -> str:
            "Divide."
            return str(1 / Decimal(3))
    """
    [folder] = await loader.load([tool_folder(tmp_path, code)])

    with decimal.localcontext() as context:
        context.prec = 3
        assert await folder.call("third", {}) == "0.333"
        assert await folder.call("third_async", {}) == "0.333"
    await loader.aclose()


async def test_an_import_that_hangs_is_a_problem_and_hides_no_other(tmp_path: Path):
    loader = ThreadLoader(load_seconds=3)
    hangs, good = await loader.load(
        [
            tool_folder(tmp_path / "hangs", "import threading; threading.Event().wait(60)"),
            tool_folder(tmp_path / "good", TOOLS),
        ]
    )

    assert "did not load within 3 seconds" in hangs.description.problems[0].reason
    assert await good.call("greet", {}) == "hello"
    await loader.aclose()


async def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process(tmp_path: Path):
    tool_folder(tmp_path / "mine", TOOLS)
    code = f"""
        import anyio, asyncio
        from pathlib import Path
        from mochi_server.tools.base import FolderSpec
        from mochi_server.tools.functions.threads import ThreadLoader

        async def main():
            spec = FolderSpec(path=Path({str(tmp_path / "mine")!r}))
            [folder] = await ThreadLoader().load([spec])
            with anyio.move_on_after(0.1):
                await folder.call("block", {{"folder": {str(tmp_path)!r}, "name": "began"}})
            print("ended")

        asyncio.run(main())
    """

    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    )

    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


async def test_modules_of_a_closed_folder_are_forgotten(tmp_path: Path):
    loader = ThreadLoader()
    await loader.load([tool_folder(tmp_path, TOOLS)])  # the first one imports what loads need
    before = set(sys.modules)
    [folder] = await loader.load([tool_folder(tmp_path, TOOLS)])
    assert set(sys.modules) - before

    await folder.aclose()

    assert not set(sys.modules) - before
    await loader.aclose()


ALONE = """
    __sequential__ = ["block", "block_async"]
    __timeouts__ = {"block": 1, "block_async": 1}
"""


@pytest.mark.parametrize("name", ["block", "block_async"])
async def test_a_sequential_call_waits_for_one_that_was_given_up_and_goes_on(
    tmp_path: Path, name: str
):
    """Never twice at a time, also where the function has been loaded again meanwhile."""
    loader, service = ThreadLoader(), ToolExecutionService()

    async def tool() -> FunctionTool:
        [folder] = await loader.load([tool_folder(tmp_path / "mine", TOOLS + ALONE)])
        details = {each.name: each for each in folder.description.tools}[name]
        return FunctionTool(details, folder, source="directory", default_timeout=5)

    async def run(tool: FunctionTool, mark: str) -> ToolExecutionResult:
        context = ToolContext(session_id="s", tool_call_id=mark)
        arguments: JSONObject = {"folder": str(tmp_path), "name": mark}
        [result] = [step async for step in service.execute(tool, arguments, context)]
        assert isinstance(result, ToolExecutionResult)
        return result

    try:
        with anyio.fail_after(60):
            old = await tool()
            first = await run(old, "first")
            assert first.error_message == "it took longer than 1 second and was given up."
            both = [run(old, "second"), run(await tool(), "third")]
            for result in await asyncio.gather(*both):
                assert result.error_message == (
                    "an earlier call of it was given up and still runs; it must run alone, and had "
                    "no turn within 1 second."
                )
                assert result.execution_time > 0.9
            assert (tmp_path / "first").exists()
            assert not (tmp_path / "second").exists()

            fourth = asyncio.ensure_future(run(await tool(), "fourth"))
            await asyncio.sleep(0)
            (tmp_path / "go").touch()
            assert (await fourth).result == "went"
    finally:
        (tmp_path / "go").touch()
        await loader.aclose()


async def test_a_thread_that_cannot_be_started_fails_its_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    loader = ThreadLoader()
    [folder] = await loader.load([tool_folder(tmp_path / "mine", TOOLS)])

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ToolFailed, match="No thread can be started"):
            await folder.validate("greet", {})
        with pytest.raises(ToolFailed, match="No thread can be started"):
            await folder.call("greet", {})
    assert await folder.call("greet", {}) == "hello"
    await loader.aclose()
