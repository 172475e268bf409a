"""What guides and their references show is as the code is, and works."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from mochi_server import testing
from mochi_server.agents import file_tools, prompt_loader, skill_file
from mochi_server.agents.definition import AgentDefinition
from mochi_server.agents.folder import MAX_AGENTS
from mochi_server.agents.tool_factory import describe
from mochi_server.chat.rules.rule import CallRule
from mochi_server.config import MochiServerSettings, variable_of
from mochi_server.core import front_matter
from mochi_server.testmode.script import Item, Script, script_in
from tests.docs.pages import REFERENCE, ROOT, blocks, code, codes, prose, rows, section
from tests.support.pytest_runs import pytest_in
from tests.support.scripts import says, scripted
from tests.support.server import Server, running_server

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


TEST_MODE = REFERENCE / "test-mode.md"
RULES = ROOT / "docs" / "how-to" / "let-rules-decide.md"


def test_every_key_of_a_rule_is_told() -> None:
    text = section(RULES, "## By hand")
    of_the_server = {"created_at", "created_by", "waits_for"}
    told = {code(key) for key, _ in rows(text)} | of_the_server
    assert of_the_server <= codes(text)
    assert told == {each.name for each in dataclasses.fields(CallRule)}


TEST_A_FRONT_END = ROOT / "docs" / "how-to" / "test-a-front-end.md"


def test_every_key_of_a_block_and_every_item_is_documented_and_no_other() -> None:
    keys = rows(section(TEST_MODE, "## The instruction block"))
    items = {code(row[0]) for row in rows(section(TEST_MODE, "### Items"))}
    assert {code(row[0]) for row in keys} - items == set(Script.model_fields)
    assert items == set(Item.model_fields)


def test_every_field_of_an_item_is_documented() -> None:
    for row in rows(section(TEST_MODE, "### Items")):
        shown = set(re.findall(r'"(\w+)"', row[1]))
        kind = Item.model_fields[code(row[0])].annotation
        known = re.findall(r"mochi_server\.testmode\.script\.(\w+)", str(kind))
        if known:
            fields = getattr(inspect.getmodule(Item), known[0]).model_fields
            assert shown <= set(fields)
            assert set(fields) <= shown | {"reasoning"}


def test_the_blocks_that_are_shown_are_scripts() -> None:
    shown = [block for page in (TEST_MODE, TEST_A_FRONT_END) for block in blocks(page)]
    messages = [block.text for block in shown if block.language != "json"]
    scripts = [text for text in messages if "<|instruction_start|>" in text]
    assert len(scripts) == 2
    assert all(script_in(text) is not None for text in scripts)
    steps, agent = [block.text for block in blocks(TEST_MODE) if block.language == "json"]
    assert Script.model_validate_json(steps).step(1) is not None
    assert Script.model_validate_json(agent).step(1) is not None
    inner = script_in(json.loads(agent)["messages"][0]["tool_call"][0]["args"]["instruction"])
    assert inner is not None
    assert inner.lasting


def test_every_helper_is_shown_and_the_calls_that_are_shown_work() -> None:
    table = rows(section(TEST_A_FRONT_END, "## Instructions for a reply"))
    shown = [text for row in table for text in codes(row[0])]
    for text in shown:
        item = eval(text, vars(testing))
        assert isinstance(testing.instructions(item), str)
    used = {node.func.id for text in shown for node in [ast.parse(text, mode="eval").body]}  # type: ignore[attr-defined]
    functions = set(testing.__all__) - {"TestServer", "instructions", "running_server"}
    assert used == functions


@pytest.mark.parametrize("name", ["lorem", "lorem-small", "lorem-plain"])
def test_the_listed_models_are_told(name: str) -> None:
    assert name in codes(prose(TEST_MODE))


SERVICE = ROOT / "docs" / "how-to" / "run-as-a-service.md"
ANALYZE = shutil.which("systemd-analyze")
EXECUTABLE = "/opt/mochi-server/bin/mochi-server"

CLOSING_SECONDS = 15
"""For saves, background work, tools and connections, after the turns."""


def unit() -> str:
    return next(block.text for block in blocks(SERVICE) if block.language == "ini")


def lines_of(name: str) -> list[str]:
    return re.findall(rf"(?m)^{name}=(.*)$", unit())


def test_a_stop_has_time_for_turns_and_all_that_comes_after_them() -> None:
    shutdown = MochiServerSettings.model_fields["shutdown_seconds"].default
    assert int(lines_of("TimeoutStopSec")[0]) >= shutdown + CLOSING_SECONDS


def test_the_variables_of_the_unit_are_settings() -> None:
    known = {variable_of(field) for field in MochiServerSettings.model_fields}
    named = {line.partition("=")[0].removesuffix("_FILE") for line in lines_of("Environment")}
    assert named <= known


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    assert ANALYZE is not None
    path = tmp_path / "mochi-server.service"
    path.write_text(unit().replace(EXECUTABLE, sys.executable).replace("User=mochi", "User=root"))
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    ours = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, ours) == (0, [])


CLIENTS = ROOT / "docs" / "how-to" / "write-a-client.md"
PROGRAM = re.compile(r"(?ms)^## (\w+), ([^\n]+)\n.*?^```(python|javascript)\n(.*?)^```")
PROGRAMS = [found.groups() for found in PROGRAM.finditer(CLIENTS.read_text())]
MOST_LINES = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("data")
    settings = {"environment": "test", "test_words_per_second": 0}
    async with running_server(data_dir=folder, **settings) as running:
        yield running


def test_there_are_four_short_programs() -> None:
    names = [(language, wire) for language, wire, _, _ in PROGRAMS]
    wires = ["server-sent events", "WebSocket"]
    assert names == [(language, wire) for language in ("Python", "JavaScript") for wire in wires]
    assert all(code.count("\n") <= MOST_LINES for *_, code in PROGRAMS)


each_program = pytest.mark.parametrize(
    ("wire", "language", "code"),
    [pytest.param(*rest, id=f"{name} {rest[0]}") for name, *rest in PROGRAMS],
)


async def run_program(
    server: Server, folder: Path, wire: str, language: str, code: str, *, model: str, message: str
) -> tuple[int | None, str, str]:
    """Run a program and return its exit code, its output and its errors."""
    path = folder / ("client.py" if language == "python" else "client.mjs")
    path.write_text(code)
    command = [sys.executable]
    if language == "javascript":
        node = shutil.which("node")
        if node is None:
            pytest.skip("node is not installed")
        command = [node, "--experimental-websocket"]
    base = server.url.replace("http", "ws", 1) if wire == "WebSocket" else server.url
    process = await asyncio.create_subprocess_exec(
        *(*command, str(path), base, model, message),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with anyio.fail_after(100):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), error.decode()


@pytest.mark.asyncio(loop_scope="module")
@each_program
async def test_a_program_shows_the_answer(
    server: Server, tmp_path: Path, wire: str, language: str, code: str
) -> None:
    message = scripted([says("It scatters blue light.")])
    done = await run_program(
        server, tmp_path, wire, language, code, model="qwen3:14b", message=message
    )
    assert done[:2] == (0, "It scatters blue light."), done


@pytest.mark.asyncio(loop_scope="module")
@each_program
async def test_a_program_shows_why_a_request_is_refused_and_ends(
    server: Server, tmp_path: Path, wire: str, language: str, code: str
) -> None:
    _, out, error = await run_program(
        server, tmp_path, wire, language, code, model="preset/nobody", message="Hello"
    )
    assert out == ""
    assert "There is no preset named 'nobody'." in error
