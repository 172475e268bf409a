"""The agent of the guide is an agent, passes its own tests, and the reference tells the truth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mochi_server.agents import file_tools, prompt_loader, skill_file
from mochi_server.agents.discovery import AgentDefinition
from mochi_server.agents.folder import MAX_AGENTS
from mochi_server.agents.tool_factory import describe
from mochi_server.core import front_matter
from tests.docs.pages import REFERENCE, ROOT, blocks, code, rows, section
from tests.support.pytest_runs import pytest_in
from tests.support.server import running_server

GUIDE = ROOT / "docs" / "how-to" / "write-an-agent.md"
PAGE = REFERENCE / "agents.md"


def write_shopper(data: Path) -> None:
    skill, functions, exports, tests = (
        block.text for block in blocks(GUIDE) if block.language in {"markdown", "python"}
    )
    folder = data / "agents" / "shopper"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill)
    (folder / "shopper.py").write_text(functions)
    (folder / "__init__.py").write_text(exports)
    (data / "test_shopper.py").write_text(tests)


@pytest.mark.slow
def test_the_agent_of_the_guide_passes_the_tests_of_the_guide(tmp_path):
    write_shopper(tmp_path / "data")
    done = pytest_in(tmp_path, "data")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.slow
async def test_the_commands_of_the_guide_find_it_and_enable_it(tmp_path):
    write_shopper(tmp_path)
    async with running_server(data_dir=tmp_path) as server:
        status, agent = await server.get("/agents/shopper")
    assert (status, agent["tools"]) == (200, ["add_thing", "remove_thing", "show_list"])
    assert agent["problems"] == []


def test_every_key_of_the_file_is_documented_and_no_other():
    table = {code(row[0]) for row in rows(section(PAGE, "## SKILL.md"))}
    source = Path(skill_file.__file__).read_text()
    read = re.findall(r'keys\.(?:text|needed|names)\("([a-z-]+)"', source)
    assert table == {*read, "metadata"}


def test_the_limits_are_those_of_the_code():
    text = " ".join(PAGE.read_text("utf-8").split())
    for number, unit in (
        (skill_file.DESCRIPTION_CHARACTERS, "characters"),
        (skill_file.COMPATIBILITY_CHARACTERS, "characters"),
        (skill_file.NAME_CHARACTERS, "characters"),
        (front_matter.MAX_FILE_BYTES, "bytes of file"),
        (front_matter.MAX_CHARACTERS, "characters of front matter"),
        (front_matter.MAX_DEPTH, "levels"),
        (file_tools.MAX_FILES, "files"),
        (file_tools.MAX_CHARACTERS, "characters of a text file"),
        (file_tools.MAX_FILE_BYTES, "bytes"),
        (prompt_loader.MAX_FILE_BYTES, "bytes"),
        (MAX_AGENTS, "agents"),
    ):
        assert f"{number:,} {unit}" in text


def test_the_tool_is_described_as_the_page_shows():
    agents = [
        AgentDefinition(name=name, path=Path(), description=text)
        for name, text in (
            ("coder", "A coding agent with file system operations."),
            ("researcher", "Answers from the person's documents."),
        )
    ]
    [shown] = [block.text for block in blocks(PAGE) if block.text.startswith("Delegate")]
    assert describe(agents) == shown.rstrip("\n")
