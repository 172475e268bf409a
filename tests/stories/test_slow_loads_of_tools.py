"""Imports that take long, or never end: nobody waits for them who has something already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mochi_server.agents import AgentDiscoveryService
from mochi_server.core import single_flight
from mochi_server.tools.folder.source import DirectorySource
from mochi_server.tools.loading import FolderSpec, ToolLoader
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.agents import write_agent
from tests.support.tools import function, noting, write_tools
from tests.support.waiting import until

WAIT = """
import pathlib, time
while not pathlib.Path({!r}).exists():
    time.sleep(0.005)
"""


def slow(folder: Path) -> str:
    """Lines of a module that say that it is imported, and wait for a file."""
    return noting(folder / "begun") + WAIT.format(str(folder / "go"))


def exporting(name: str) -> str:
    return f"{function(name)}\n__all__ = [{name!r}]\n"


@pytest.fixture
def loader() -> ToolLoader:
    return ProcessLoader()


@asynccontextmanager
async def source_of(folder: Path, loader: ToolLoader) -> AsyncIterator[DirectorySource]:
    source = DirectorySource(FolderSpec(path=folder), loader=loader, default_timeout=60)
    try:
        yield source
    finally:
        await source.aclose()
        await loader.aclose()


async def names(source: DirectorySource) -> list[str]:
    with anyio.fail_after(30):
        return [tool.name for tool in await source.tools()]


async def test_what_was_there_is_used_while_a_change_takes_long_to_load(
    tmp_path: Path,
    loader: ToolLoader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(single_flight, "PATIENCE_SECONDS", 0.2)
    folder = write_tools(tmp_path / "tools", init=exporting("old"))
    async with source_of(folder, loader) as source:
        assert await names(source) == ["old"]
        write_tools(folder, init=slow(tmp_path) + exporting("new"))
        assert await names(source) == ["old"]
        [problem] = source.problems()
        assert "still being loaded" in problem.reason
        assert await names(source) == ["old"]
        [line] = [text for text in caplog.messages if "still being loaded" in text]
        assert str(folder) in line

        reloading = asyncio.ensure_future(source.reload())
        await until((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        with anyio.fail_after(30):
            await reloading
        assert await names(source) == ["new"]
        assert list(source.problems()) == []


async def test_who_has_waited_for_one_load_waits_no_longer_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    monkeypatch.setattr(single_flight, "PATIENCE_SECONDS", 1)
    folder = write_tools(tmp_path / "tools", init=exporting("old"))
    async with source_of(folder, ProcessLoader()) as source:
        assert await names(source) == ["old"]
        write_tools(folder, init=slow(one) + exporting("new"))
        first = asyncio.ensure_future(names(source))
        await until((one / "begun").exists)
        write_tools(folder, init=slow(two) + exporting("newer"))
        asked = asyncio.ensure_future(names(source))
        await asyncio.sleep(0)
        monkeypatch.setattr(single_flight, "PATIENCE_SECONDS", 60)  # of the load that begins now
        (one / "go").touch()
        assert await asked in (["old"], ["new"])
        (two / "go").touch()
        await first


async def test_the_first_load_is_waited_for(
    tmp_path: Path, loader: ToolLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to go on with, and a model without its tools answers something else."""
    monkeypatch.setattr(single_flight, "PATIENCE_SECONDS", 0)
    folder = write_tools(tmp_path / "tools", init=slow(tmp_path) + exporting("add"))
    async with source_of(folder, loader) as source:
        asked = asyncio.ensure_future(names(source))
        await until((tmp_path / "begun").exists)
        assert not asked.done()
        (tmp_path / "go").touch()
        assert await asked == ["add"]


async def test_agents_go_on_too(
    tmp_path: Path, loader: ToolLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_flight, "PATIENCE_SECONDS", 0.2)
    coder = write_agent(tmp_path / "agents" / "coder", tools=["work"])
    discovery = AgentDiscoveryService(tmp_path / "agents", loader=loader, default_timeout=60)
    try:
        assert list((await discovery.get("coder")).tools) == ["work"]
        write_agent(coder, tools=["play"])
        module = coder / "coder.py"
        module.write_text(slow(tmp_path) + module.read_text())
        with anyio.fail_after(30):
            assert list((await discovery.get("coder")).tools) == ["work"]
        [problem] = discovery.problems()
        assert "still being loaded" in problem.reason
        (tmp_path / "go").touch()
        await until(lambda: discovery.get("coder"), lambda coder: list(coder.tools) == ["play"])
        assert discovery.problems() == []
    finally:
        await discovery.aclose()
        await loader.aclose()


async def test_the_end_waits_for_no_import(tmp_path: Path, loader: ToolLoader) -> None:
    folder = write_tools(tmp_path / "tools", init=slow(tmp_path) + exporting("add"))
    async with source_of(folder, loader) as source:
        asked = asyncio.ensure_future(names(source))
        await until((tmp_path / "begun").exists)
        with anyio.fail_after(30):
            await source.aclose()
            assert await asked == []
    (tmp_path / "go").touch()  # the thread, if it is one, ends as well
