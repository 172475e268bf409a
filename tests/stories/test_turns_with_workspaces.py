"""Turns whose model works in the folder of its session, in a real sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.doctor.extensions import check_workspaces
from mochi_server.protocol.events import Event
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.turns import Bench, bench, read_until
from tests.support.waiting import until

TOOLS = [
    *("workspace__read_file", "workspace__write_file", "workspace__edit_file"),
    *("workspace__list_files", "workspace__search_files", "workspace__execute_command"),
]


@pytest.fixture(params=["bubblewrap", "process"])
async def engine(
    tmp_path: Path, ollama: FakeOllama, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    if request.param == "bubblewrap":
        bubblewrap_or_skip()
    async with bench(tmp_path, ollama, workspace_enabled=True, sandbox=request.param) as found:
        yield found


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": f"workspace__{tool}", "arguments": arguments}


def results(events: list[Event]) -> list[str]:
    return [event.payload()["result"] for event in events if event.type == "tool_result"]


async def session(engine: Bench, policy: str = "never_confirm") -> str:
    settings = ToolSettings(tool_group="workspace", execution_policy=ToolExecutionPolicy(policy))
    return await engine.session(tool_settings=settings)


async def test_each_session_has_a_folder_that_is_kept_and_is_its_own(
    engine: Bench, ollama: FakeOllama
) -> None:
    one, other = await session(engine), await session(engine)
    ollama.reply(tool_calls=[call("write_file", path="a.txt", content="first\n")])
    ollama.reply(tool_calls=[call("execute_command", command="cat a.txt; ls ..; ls | wc -l")])
    ollama.reply(["Done."])
    events = await engine.turn(one)
    written, said = results(events)
    assert written == "Created a.txt (6 bytes)."
    assert said.startswith("Exit code: 0\nOutput:\nfirst\n")
    assert [each["function"]["name"] for each in ollama.chats[0]["tools"]] == TOOLS
    ollama.reply(tool_calls=[call("list_files")])
    ollama.reply(["Done."])
    assert results(await engine.turn(other)) == ["[No files.]"]
    await engine.runtime.mcp.stop("workspace")  # as one that was not used for a while
    ollama.reply(tool_calls=[call("read_file", path="a.txt")])
    ollama.reply(["Done."])
    assert results(await engine.turn(one)) == ["first"]
    assert (engine.settings.workspace_path / one / "a.txt").read_text() == "first\n"
    await engine.sessions.delete(one)
    assert os.listdir(engine.settings.workspace_path) == [other]  # noqa: PTH208


async def test_only_what_changes_files_is_asked_about(engine: Bench, ollama: FakeOllama) -> None:
    chosen = await session(engine, "confirm_destructive")
    ollama.reply(tool_calls=[call("list_files")])
    ollama.reply(tool_calls=[call("execute_command", command="touch a")])
    log = await engine.start(chosen)
    events = await read_until(log.reader(), "tool_call_confirmation_required")
    assert results(events) == ["[No files.]"]
    [question] = [each for each in events if each.type == "tool_call_confirmation_required"]
    assert question.payload()["tool_name"] == "workspace__execute_command"


async def test_without_a_sandbox_that_works_the_tools_are_not_offered(
    tmp_path: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no docker there
    async with bench(tmp_path, ollama, workspace_enabled=True, sandbox="docker") as engine:
        engine.runtime.start()
        catalogue = engine.runtime.tools
        await until(lambda: engine.runtime.mcp.problems)
        inventory = await catalogue.inventory()
        assert not inventory.tools
        [problem] = inventory.problems
        assert problem.reason == (
            "The tools of workspaces are not offered: the sandbox 'docker' does not work here: "
            "neither docker nor podman is installed."
        )
        [finding] = await check_workspaces(engine.runtime)
        assert (finding.level, "neither docker" in finding.what) == ("warning", True)


async def test_doctor_says_what_confines(engine: Bench) -> None:
    [finding] = await check_workspaces(engine.runtime)
    expected = {"bubblewrap": ("ok", "bubblewrap"), "process": ("warning", "nothing")}
    level, word = expected[engine.settings.sandbox]
    assert finding.level == level
    assert word in finding.what
