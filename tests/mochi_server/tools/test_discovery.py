"""The library's own door to a folder of tools."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mochi_server.tools as package
from mochi_server.tools import ToolDiscoveryService
from tests.support.server import ROOT, environment
from tests.support.tools import function, noting, write_tools

ADD = """
def add(a: int, b: int) -> str:
    \"\"\"Add two numbers.\"\"\"
    return str(a + b)

__all__ = ["add", "missing"]
__math__ = ["add"]
"""


def test_tools_groups_and_problems_of_a_folder_are_found(tmp_path):
    service = ToolDiscoveryService(write_tools(tmp_path / "tools", init=ADD))
    assert service.tools["add"](2, 3) == "5"
    assert service.groups == {"math": ["add"]}
    [problem] = service.problems
    assert (problem.tool, problem.file) == ("missing", str(tmp_path / "tools" / "__init__.py"))
    [tool] = service.discover().tools
    assert (tool.name, tool.description) == ("add", "Add two numbers.")


def test_nothing_is_loaded_before_it_is_asked_for_and_then_once(tmp_path):
    log = tmp_path / "log"
    text = noting(log) + ADD
    service = ToolDiscoveryService(str(write_tools(tmp_path / "tools", init=text)))
    assert not log.exists()
    assert service.discover() is service.discover()
    assert set(service.tools) == {"add"}
    assert log.read_text() == "x"


def test_a_reload_finds_what_has_changed_and_leaves_held_functions_alone(tmp_path):
    folder = write_tools(tmp_path / "tools", init=function("add") + "\n__all__ = ['add']")
    service = ToolDiscoveryService(folder)
    old = service.tools["add"]
    changed = function("add", "return 'new'") + function("sub") + "\n__all__ = ['add', 'sub']"
    write_tools(folder, init=changed)
    assert set(service.tools) == {"add"}
    assert [tool.name for tool in service.reload_tools().tools] == ["add", "sub"]
    assert (old(), service.tools["add"]()) == ("add", "new")


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    service = ToolDiscoveryService(tmp_path / "nowhere")
    assert (service.tools, service.groups, service.problems) == ({}, {}, [])


def test_every_promised_name_is_there_and_no_other():
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = package.Nothing


def test_the_package_is_imported_without_what_loads_code():
    code = (
        "import sys, mochi_server.tools; print('mochi_server.tools.folder.package' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
        timeout=100,
    )
    assert done.stdout.strip() == "False"
