"""A package that is installed beside the server brings a provider and a tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mochi_server.testing import call, instructions, text
from tests.support.server import ROOT, environment, run_command, running_server

BROKEN = """[mochi_server.providers]
broken = mochi_broken:Provider
ollama = mochi_broken:Provider
misspelt = mochi-broken:Provider
vanishing = mochi_exiting:Provider
[mochi_server.tools]
exiting = mochi_exiting
leaving = mochi_leaving
missing = mochi_missing.tools
misspelt = mochi-broken.tools
same = mochi_same:say_backwards
"""
PROBLEM = "The package mochi-broken 2.0 cannot be used: RuntimeError: nothing works here"
PROBLEM_OF_EXIT = (
    "The package mochi-broken 2.0 cannot be used: loading it ends the process, with exit code 3"
)
PROBLEMS_OF_TOOLS = [
    "The tools cannot be loaded: the tool's process ended with exit code 3.",
    "SystemExit: it leaves",
    "ModuleNotFoundError: No module named 'mochi_missing'",
    "ModuleNotFoundError: No module named 'mochi-broken'",
    "The name 'say_backwards' is taken by a tool of 'package:parrot', which comes first.",
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, as pip installs it, and one that cannot be imported."""
    folder = tmp_path_factory.mktemp("packages")
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", folder, ROOT / "examples" / "plugin"],
        check=True,
        timeout=120,
    )
    (folder / "mochi_broken.py").write_text("raise RuntimeError('nothing works here')")
    (folder / "mochi_leaving.py").write_text("raise SystemExit('it leaves')")
    (folder / "mochi_exiting.py").write_text("import os\nos._exit(3)")
    (folder / "mochi_same.py").write_text("from mochi_parrot.tools import say_backwards")
    told = folder / "mochi_broken-2.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mochi-broken\nVersion: 2.0\n")
    (told / "entry_points.txt").write_text(BROKEN)
    untold = folder / "mochi_silent-3.0.dist-info"
    untold.mkdir()
    (untold / "entry_points.txt").write_text(
        "[mochi_server.providers]\nsilent = mochi_silent.provider:Provider\n"
    )
    return folder


async def test_their_models_and_tools_are_used_and_what_is_broken_is_said(packages, tmp_path):
    async with running_server(data_dir=tmp_path, cwd=packages) as server:
        _, models = await server.get("/models")
        _, tools = await server.get("/tools")
        session_id = await server.new_session("parrot/parrot")
        status, answer = await server.post(f"/chat/{session_id}", {"message": "Pieces of eight"})
        refused, _ = await server.post("/chat", {"model": "broken/any", "message": "Hello"})
    assert [model["name"] for model in models["models"]] == ["parrot/parrot"]
    problems = {each["provider"]: each["message"] for each in models["problems"]}
    assert problems["broken"] == PROBLEM
    assert problems["vanishing"] == PROBLEM_OF_EXIT
    assert "Cannot connect to Ollama" in problems["ollama"]  # no package takes its name
    assert tools["groups"] == {"parrot": ["say_backwards"], "same": ["say_backwards"]}
    assert [each["reason"] for each in tools["problems"]] == PROBLEMS_OF_TOOLS
    assert (status, answer["message"]["content"]) == (200, "Pieces of eight ")
    assert refused == 424
    assert f"broken: {PROBLEM}" in server.log


async def test_their_tools_are_called(packages, tmp_path):
    settings = {"tools": ["say_backwards"], "execution_policy": "never_confirm"}
    message = instructions(call("say_backwards", text="drawer"), then=[[text(exactly="Done.")]])
    async with running_server(data_dir=tmp_path, cwd=packages, environment="test") as server:
        session_id = await server.new_session("lorem", tool_settings=settings)
        await server.post(f"/chat/{session_id}", {"message": message})
        _, session = await server.get(f"/sessions/{session_id}")
    results = [each["content"] for each in session["messages"] if each["role"] == "tool"]
    assert results == ["reward"]


async def test_a_tool_is_called_without_a_server(packages, tmp_path):
    arguments = ("say_backwards", '{"text": "drawer"}')
    variables = environment(data_dir=tmp_path)
    ended = await run_command("tools", "run", *arguments, cwd=packages, env=variables)
    assert (ended.code, ended.out) == (0, "reward\n")


async def test_doctor_lists_them(packages, tmp_path):
    ended = await run_command("doctor", cwd=packages, env=environment(data_dir=tmp_path))
    assert "The package mochi-parrot 1.0 brings the provider parrot." in ended.out
    assert "The package mochi-parrot 1.0 brings the group of tools parrot." in ended.out
    assert "brings the provider ollama, which is not used" in ended.out
    assert PROBLEM in ended.out
    assert PROBLEM_OF_EXIT in ended.out


async def test_doctor_names_a_package_without_metadata_by_its_module(packages, tmp_path):
    ended = await run_command("doctor", cwd=packages, env=environment(data_dir=tmp_path))
    assert "The package mochi_silent brings the provider silent." in ended.out
    assert "package None" not in ended.out


async def test_doctor_says_that_test_mode_has_no_provider_of_a_package(packages, tmp_path):
    variables = environment(data_dir=tmp_path, environment="test")
    ended = await run_command("doctor", cwd=packages, env=variables)
    assert "brings the provider parrot, which is not used in test mode." in ended.out
    assert "another one has this name" not in ended.out
