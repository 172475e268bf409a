"""Functions of the caller's process: what cannot be stopped is counted, and holds up nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.folder.package import load_package
from mochi_server.tools.functions import registered
from mochi_server.tools.functions.registered import RegisteredFunctions
from mochi_server.tools.functions.results import as_text
from tests.support.tool_folders import tool_folder
from tests.support.waiting import until

from .hints import Colour, Point, Size

TOOLS = '''
    import asyncio
    import threading
    from pathlib import Path

    __all__ = ["block", "block_async", "greet"]

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
'''
ROOT = Path(__file__).parents[4]


@asynccontextmanager
async def registered_functions(
    folder: Path, code: str = TOOLS
) -> AsyncIterator[RegisteredFunctions]:
    package = load_package(tool_folder(folder, code), generation="test")
    functions = RegisteredFunctions(package.functions)
    yield functions
    await functions.aclose()
    package.forget()


@pytest.mark.parametrize("tool", ["block", "block_async"])
async def test_too_many_calls_that_do_not_stop_keep_new_ones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
):
    monkeypatch.setattr(registered, "MAX_ABANDONED", 3)
    async with registered_functions(tmp_path / "mine") as folder:
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

        async def greeted() -> object:
            with suppress(ToolFailed):
                return await folder.call("greet", {})
            return None

        assert await until(greeted) == "hello"


async def test_functions_see_the_caller_s_context(tmp_path: Path):
    """The precision of decimal numbers is a context variable."""
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
    async with registered_functions(tmp_path, code) as folder:
        with decimal.localcontext() as context:
            context.prec = 3
            assert await folder.call("third", {}) == "0.333"
            assert await folder.call("third_async", {}) == "0.333"


async def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process(tmp_path: Path):
    code = """
        import anyio, asyncio, threading
        from mochi_server.tools.base import ToolContext
        from mochi_server.tools.functions.registered import RegisteredSource

        def block() -> str:
            "Wait for ever."
            threading.Event().wait()

        async def main():
            [tool] = await RegisteredSource([block], default_timeout=None).tools()
            with anyio.move_on_after(0.1):
                async for _ in tool.run({}, ToolContext(session_id="s", tool_call_id="c")):
                    pass
            print("ended")

        asyncio.run(main())
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(code))

    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, str(path)],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    )

    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


async def test_a_thread_that_cannot_be_started_fails_its_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with registered_functions(tmp_path / "mine") as folder:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            with pytest.raises(ToolFailed, match="No thread can be started"):
                await folder.call("greet", {})
        assert await folder.call("greet", {}) == "hello"


# What functions return, as a model reads it


class Unprintable:
    def __str__(self) -> str:
        raise SystemExit("no")


class Word(str, enum.Enum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "(no result)"),
        (Word.YES, "yes"),
        (Colour.RED, "red"),
        (7, "7"),
        (True, "True"),
        (b"abc\xff", "abc\ufffd"),
        ({"ü": [1, None]}, '{"ü": [1, null]}'),
        ((1, "a"), '[1, "a"]'),
        (Point(x=1), '{"title": "here", "x": 1, "near": []}'),
        (Size(1), '{"width": 1, "height": 1}'),
        ({"at": dt.date(2024, 1, 2), "in": Path("a")}, '{"at": "2024-01-02", "in": "a"}'),
        ({"n": float("inf"), "b": b"\xff"}, '{"n": Infinity, "b": "\ufffd"}'),
        ("a\ud800", "a?"),
        ({"k": "\ud800"}, '{"k": "?"}'),
        ({1: {2}}, '{"1": [2]}'),
        (2**70, str(2**70)),
        (dt.date(2024, 1, 2), "2024-01-02"),
    ],
)
def test_results_become_text(value: object, text: str) -> None:
    assert as_text(value) == text


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def coroutine() -> str:
    return ""


@pytest.mark.parametrize(
    "make",
    [Unprintable, lambda: [Unprintable()], endless, coroutine],
    ids=["object", "inside", "endless", "coroutine"],
)
def test_a_result_that_cannot_be_text_is_a_failure(make: Any) -> None:
    with pytest.raises(ToolFailed):
        as_text(make())
