"""Agents are found in their folder, with reasons for those that cannot be used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from mochi_server.agents import AgentDefinition, AgentDiscoveryService
from mochi_server.agents import folder as folders
from mochi_server.errors import AgentInvalid, AgentNotFound
from mochi_server.tools.base import Tool, ToolContext, ToolOutput
from mochi_server.tools.folder.snapshot import write_stamp
from mochi_server.tools.loading import FolderSpec, LoadedFolder, ToolLoader
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.agents import write_agent, write_skill, write_tools_agent
from tests.support.tools import function, noting

CONTEXT = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")


class CountingLoader(ToolLoader):
    """Hands on to a real loader, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.inner = ProcessLoader()
        self.asked: list[list[str]] = []

    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        self.asked.append([folder.path.name for folder in folders])
        return await self.inner.load(folders)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Agents:
    """A folder of agents and its discovery."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "agents"
        self.stamp = folder / "stamp"
        self.loader = CountingLoader()
        self.discovery = AgentDiscoveryService(
            self.folder,
            loader=self.loader,
            default_timeout=60,
            agent_chats_path=self.folder / "chats",
            stamp=self.stamp,
        )

    async def all(self) -> dict[str, AgentDefinition]:
        return dict(await self.discovery.agents())

    async def one(self) -> AgentDefinition:
        [agent] = (await self.all()).values()
        return agent


@pytest_asyncio.fixture
async def agents(tmp_path):
    found = Agents(tmp_path)
    yield found
    await found.discovery.aclose()
    await found.loader.aclose()


async def result_of(tool: Tool, **arguments: object) -> str:
    given = await tool.validate(dict(arguments))
    with anyio.fail_after(30):
        steps = [step async for step in tool.run(given, CONTEXT)]
    assert isinstance(steps[-1], ToolOutput)
    return steps[-1].content


# Layouts


async def test_three_files_are_an_agent(agents):
    write_agent(agents.folder / "coder", "description: Writes code.", tools=["read", "write"])
    agent = await agents.one()
    assert (agent.name, agent.description, agent.valid) == ("coder", "Writes code.", True)
    assert (agent.model, agent.error_message, list(agent.problems)) == (None, None, [])
    assert agent.system_prompt == "You work."
    assert list(agent.tools) == ["read", "write"]
    assert await result_of(agent.tools["write"]) == "write"
    assert {tool.source for tool in agent.tools.values()} == {"agent:coder"}
    assert agent.tools["read"].timeout == 60


async def test_a_folder_of_tools_is_one_too(agents):
    folder = write_tools_agent(agents.folder / "coder", tools=["read"])
    (folder / "tools" / "more").mkdir()
    (folder / "tools" / "more" / "__init__.py").write_text(function("ask") + "__all__ = ['ask']")
    agent = await agents.one()
    assert list(agent.tools) == ["read", "ask"]
    assert await result_of(agent.tools["ask"]) == "ask"


async def test_a_folder_of_tools_counts_alone(agents):
    folder = write_tools_agent(agents.folder / "coder", tools=["read"])
    (folder / "__init__.py").write_text("raise RuntimeError('nobody imports this')")
    assert list((await agents.one()).tools) == ["read"]


async def test_an_agent_with_a_hyphen_has_a_module_that_can_be_imported(agents):
    folder = write_skill(agents.folder / "code-writer")
    (folder / "code_writer.py").write_text(function("work"))
    (folder / "__init__.py").write_text("from .code_writer import work\n__all__ = ['work']")
    assert list((await agents.one()).tools) == ["work"]


async def test_a_skill_without_code_can_read_its_own_files(agents):
    folder = write_skill(agents.folder / "pdf-forms")
    (folder / "references").mkdir()
    (folder / "references" / "guide.md").write_text("Fill it in.")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "fill.py").write_text("raise RuntimeError('nobody imports this')")
    agent = await agents.one()
    assert agent.valid
    assert list(agent.tools) == ["list_skill_files", "read_skill_file"]
    listed = await result_of(agent.tools["list_skill_files"])
    assert "references/guide.md (11 bytes)" in listed.splitlines()
    assert (
        await result_of(agent.tools["read_skill_file"], path="references/guide.md") == "Fill it in."
    )
    assert agents.loader.asked == []


async def test_an_agent_with_code_reads_files_only_where_there_are_some(agents):
    folder = write_agent(agents.folder / "coder")
    assert list((await agents.one()).tools) == ["work"]
    (folder / "style.md").write_text("Be brief.")
    assert list((await agents.one()).tools) == ["work", "list_skill_files", "read_skill_file"]


async def test_an_own_tool_goes_before_a_built_in_one(agents):
    folder = write_agent(agents.folder / "coder", tools=["read_skill_file"])
    (folder / "style.md").write_text("Be brief.")
    tools = (await agents.one()).tools
    assert await result_of(tools["read_skill_file"]) == "read_skill_file"
    assert "list_skill_files" in tools


async def test_what_is_no_agent_is_skipped(agents):
    for name in ("_draft", ".hidden", "agent_chats", "chats"):
        write_agent(agents.folder / name)
    (agents.folder / "empty").mkdir()
    (agents.folder / "docs").mkdir()
    (agents.folder / "docs" / "notes.md").write_text("Notes.")
    (agents.folder / "file.py").write_text("x = 1")
    assert await agents.all() == {}
    assert list(agents.discovery.problems()) == []
    assert agents.loader.asked == []


async def test_a_name_that_is_no_text_is_skipped(agents):
    write_agent(agents.folder / "coder")
    (agents.folder / os.fsdecode(b"x\xff")).mkdir()
    shutil.copy(agents.folder / "coder" / "SKILL.md", agents.folder / os.fsdecode(b"x\xff"))
    assert list(await agents.all()) == ["coder"]


async def test_a_folder_that_is_a_file_is_a_problem(agents):
    agents.folder.write_text("no folder")
    assert await agents.all() == {}
    [problem] = agents.discovery.problems()
    assert (problem.file, problem.reason) == (str(agents.folder), "cannot be read: Not a directory")


async def test_folders_beyond_the_limit_are_a_problem(agents, monkeypatch):
    monkeypatch.setattr(folders, "MAX_AGENTS", 2)
    for name in ("a", "b", "c", "d"):
        write_skill(agents.folder / name)
    assert list(await agents.all()) == ["a", "b"]
    [problem] = agents.discovery.problems()
    assert (problem.file, problem.reason) == (
        str(agents.folder),
        "has more than 2 folders; those after 'b' are left out",
    )


async def test_a_linked_folder_is_an_agent(agents, tmp_path):
    folder = write_skill(tmp_path / "elsewhere", "description: x")
    (folder / "notes.md").write_text("Notes.")
    agents.folder.mkdir()
    (agents.folder / "coder").symlink_to(folder)
    agent = await agents.one()
    assert agent.name == "coder"
    assert await result_of(agent.tools["read_skill_file"], path="notes.md") == "Notes."


# Invalid ones


def without(name):
    return lambda folder: (folder / name).unlink()


def writing(name, text):
    return lambda folder: (folder / name).write_text(text)


async def test_an_agent_whose_file_has_another_name_and_a_long_description_works(agents):
    long = "Reads everything. " * 100
    write_skill(agents.folder / "reader", "name: Reader 2", f"description: {long}")
    found = (await agents.all())["reader"]
    assert found.valid
    assert found.description == long.strip()
    assert [(each.line, each.severity) for each in found.problems] == [
        (2, "warning"), (3, "warning"),
    ]  # fmt: skip


async def test_a_skill_with_scripts_says_that_nothing_can_run_them(agents):
    """One with tools of its own may have one that runs them."""
    names = ["a.py", "b.sh", "run", "office/pack.py", "__init__.py", "README.md", "data.json"]
    for folder in (write_skill(agents.folder / "plain"), write_tools_agent(agents.folder / "able")):
        for name in names:
            place = folder / "scripts" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("print('hello')")
    (write_skill(agents.folder / "reader") / "examples").mkdir()
    (agents.folder / "reader" / "examples" / "page.html").write_text("<p>")
    found = await agents.all()
    assert all(agent.valid for agent in found.values())
    assert [name for name, agent in found.items() if agent.problems] == ["plain"]
    [problem] = found["plain"].problems
    assert "(scripts/a.py, scripts/b.sh, scripts/run and 1 more)" in problem.reason


async def test_a_readme_gives_an_agent_with_tools_no_more_of_them(agents):
    (write_tools_agent(agents.folder / "coder") / "README.md").write_text("For people.")
    (write_agent(agents.folder / "writer") / "Readme.md").write_text("For people.")
    found = await agents.all()
    assert {name: list(agent.tools) for name, agent in found.items()} == {
        "coder": ["work"],
        "writer": ["work"],
    }


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (without("SKILL.md"), "coder: SKILL.md is missing"),
        (without("coder.py"), "coder: coder.py is missing"),
        (without("__init__.py"), "coder: __init__.py is missing"),
        (writing("__init__.py", "__all__ = []"), "coder/coder.py: "),
        (writing("__init__.py", "x = 1\nimport nowhere_to_be_found"), "coder/__init__.py:2: "),
        (writing("coder.py", "def work(:\n"), "coder/coder.py:1: SyntaxError"),
        (writing("coder.py", "import sys\nsys.exit(3)"), "coder/coder.py:2: SystemExit"),
        (writing("coder.py", "def work(): return 1"), "coder/coder.py:1: 'work' "),
        (writing("SKILL.md", "You are."), "coder/SKILL.md:1: the file must begin with"),
        (writing("SKILL.md", "---\nname: x\n---"), "coder/SKILL.md:1: description is missing"),
        (
            writing("SKILL.md", "---\ndescription: x\nallowed-tools: [play]\n---"),
            "coder/SKILL.md:3: allowed-tools names none of the agent's tools",
        ),
    ],
)
async def test_an_agent_that_cannot_be_used_says_why_and_where(agents, spoil, reason):
    folder = write_agent(agents.folder / "coder")
    write_agent(agents.folder / "writer")
    spoil(folder)
    found = await agents.all()
    assert list(found) == ["coder", "writer"]
    assert found["writer"].valid
    coder = found["coder"]
    assert not coder.valid
    assert coder.error_message.startswith(reason)
    assert coder.problems
    assert all(Path(problem.file).is_relative_to(folder) for problem in coder.problems)
    with pytest.raises(AgentInvalid) as caught:
        await agents.discovery.get("coder")
    assert coder.error_message in caught.value.message


async def test_a_folder_of_tools_that_exports_nothing_is_no_agent(agents):
    folder = write_tools_agent(agents.folder / "coder")
    (folder / "tools" / "__init__.py").write_text("x = 1")
    agent = await agents.one()
    assert agent.error_message == "coder/tools: no tool is exported in __all__"


async def test_many_reasons_are_cut(agents):
    write_skill(folder := agents.folder / "coder")
    (folder / "coder.py").write_text("x = 1")
    (folder / "__init__.py").write_text("__all__ = ['a', 'b', 'c', 'd', 'e']")
    agent = await agents.one()
    assert agent.error_message.endswith("; and 2 more")
    assert len(agent.problems) == 5


async def test_a_tool_that_cannot_be_used_hides_no_other(agents):
    folder = write_agent(agents.folder / "coder", tools=["read", "write"])
    (folder / "__init__.py").write_text("from .coder import read\n__all__ = ['read', 'sing']")
    agent = await agents.one()
    assert (agent.valid, list(agent.tools)) == (True, ["read"])
    problem, left_out = agent.problems
    assert (problem.line, problem.tool, problem.severity) == (2, "sing", "warning")
    assert (left_out.severity, "write" in left_out.reason) == ("hint", True)
    assert agents.discovery.problems() == [problem, left_out]


async def test_an_agent_that_is_not_there_is_not_found(agents):
    for name in ("coder", "", "..", "a/b", "_x", "\0"):
        with pytest.raises(AgentNotFound):
            await agents.discovery.get(name)


# What the file says


async def test_allowed_tools_leave_the_others_out(agents):
    lines = ("description: x", "allowed-tools: read Bash(git:*)")
    write_agent(agents.folder / "coder", *lines, tools=["read", "write"])
    agent = await agents.one()
    assert (agent.valid, list(agent.tools)) == (True, ["read"])
    assert list(agent.allowed_tools) == ["read", "Bash(git:*)"]
    [problem] = agent.problems
    assert (Path(problem.file).name, problem.line) == ("SKILL.md", 3)
    assert "'Bash(git:*)'" in problem.reason


async def test_allowed_tools_of_a_skill_without_code_are_those_of_other_programs(agents):
    write_skill(agents.folder / "pdf", "description: x", "allowed-tools: Bash(git:*) Read")
    agent = await agents.one()
    assert (agent.valid, list(agent.problems)) == (True, [])
    assert list(agent.tools) == ["list_skill_files", "read_skill_file"]


async def test_only_agents_that_are_there_may_be_called(agents):
    write_agent(agents.folder / "coder", "description: x", "agents: [writer, nobody]")
    write_agent(agents.folder / "writer")
    coder = (await agents.all())["coder"]
    assert (coder.valid, list(coder.agents)) == (True, ["writer"])
    [problem] = coder.problems
    assert (problem.line, "'nobody'" in problem.reason) == (3, True)


async def test_a_tool_cannot_stand_in_the_place_of_the_one_that_calls_agents(agents):
    write_agent(agents.folder / "coder", tools=["agent", "stats"])
    coder = await agents.one()
    assert (coder.valid, list(coder.tools)) == (True, ["stats"])
    [problem] = coder.problems
    assert (problem.tool, "the server uses itself" in problem.reason) == ("agent", True)
    write_agent(agents.folder / "coder", tools=["agent"])
    assert (await agents.one()).error_message.startswith("coder/coder.py:2: 'agent' is a name")


# Changes


async def test_all_tools_are_loaded_by_one_call(agents):
    for name in ("a", "b", "c"):
        write_agent(agents.folder / name)
    write_skill(agents.folder / "d")
    assert len(await agents.all()) == 4
    assert agents.loader.asked == [["a", "b", "c"]]
    await agents.all()
    assert len(agents.loader.asked) == 1


async def test_only_what_has_changed_is_loaded_again(agents):
    one, two = (write_agent(agents.folder / name) for name in ("one", "two"))
    before = await agents.all()
    write_agent(two, tools=["play"])
    after = await agents.all()
    assert agents.loader.asked == [["one", "two"], ["two"]]
    assert list(after["two"].tools) == ["play"]
    assert list(before["two"].tools) == ["work"]

    write_skill(one, "description: Other.", body="You do other work.")
    assert (await agents.all())["one"].system_prompt == "You do other work."
    assert len(agents.loader.asked) == 2

    shutil.rmtree(one)
    write_tools_agent(two, tools=["sing"])
    write_agent(agents.folder / "three")
    after = await agents.all()
    assert {name: list(agent.tools) for name, agent in after.items()} == {
        "three": ["work"],
        "two": ["sing"],
    }
    assert agents.loader.asked[2:] == [["three", "tools"]]


async def test_what_is_held_goes_on_after_a_change(agents):
    folder = write_agent(agents.folder / "coder")
    held = (await agents.one()).tools["work"]
    (folder / "coder.py").write_text(function("work", "return 'new'"))
    assert await result_of((await agents.one()).tools["work"]) == "new"
    assert await result_of(held) == "work"
    shutil.rmtree(folder)
    assert await agents.all() == {}
    assert await result_of(held) == "work"


async def test_an_agent_that_is_mended_is_valid_again(agents):
    folder = write_agent(agents.folder / "coder")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text("broken")
    assert not (await agents.one()).valid
    (folder / "SKILL.md").write_text(text)
    assert (await agents.one()).valid
    (folder / "__init__.py").unlink()
    assert not (await agents.one()).valid
    write_agent(folder)
    assert (await agents.one()).valid


async def test_a_reload_loads_what_has_not_changed(agents, tmp_path):
    folder = write_agent(agents.folder / "coder")
    (folder / "coder.py").write_text(noting(tmp_path / "log") + function("work"))
    await agents.all()
    await agents.discovery.reload()
    assert (tmp_path / "log").read_text() == "xx"
    write_stamp(agents.stamp)
    await agents.all()
    await agents.all()
    assert (tmp_path / "log").read_text() == "xxx"


async def test_calls_at_one_time_share_a_load(agents):
    write_agent(agents.folder / "coder")
    found: list[AgentDefinition] = []

    async def ask() -> None:
        found.append(await agents.one())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask)
    assert len(found) == 20
    assert agents.loader.asked == [["coder"]]


async def test_a_reload_is_not_content_with_what_another_took_over(agents, tmp_path):
    one, two = (write_agent(agents.folder / name) for name in ("one", "two"))
    (one / "one.py").write_text(noting(tmp_path / "log") + function("work"))
    await agents.all()
    write_agent(two, tools=["play"])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(agents.discovery.agents)
            group.start_soon(agents.discovery.reload)
    assert (tmp_path / "log").read_text() == "xx"


async def test_after_the_end_nothing_is_loaded(agents):
    write_agent(agents.folder / "coder")
    tool = (await agents.one()).tools["work"]
    await agents.discovery.aclose()
    write_agent(agents.folder / "writer")
    await agents.all()
    assert len(agents.loader.asked) == 1
    with pytest.raises(Exception, match="closed"):
        await result_of(tool)
    await agents.discovery.aclose()
