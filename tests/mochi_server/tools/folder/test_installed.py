"""Tools of installed packages, which are imported in processes as those of folders are."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mochi_server.tools.folder.source import DirectorySource
from mochi_server.tools.loading import FolderDescription, FolderSpec, LoadedFolder, PackageEntry
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.tool_folders import process_loader

GREET = '''
def greet() -> str:
    """Greet."""
    return "hello"
'''


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules can be imported."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
async def loader() -> AsyncIterator[ProcessLoader]:
    async with process_loader(start_seconds=100) as loader:
        yield loader


def installed(path: Path, code: str, *, module: str = "", function: str = "") -> FolderSpec:
    """Write a module; ``path`` is that of its package, or of its only file."""
    file = path / "tools.py" if path.suffix == "" else path
    file.parent.mkdir(exist_ok=True)
    file.write_text(textwrap.dedent(code))
    name = f"{path.name}.tools" if path.suffix == "" else path.stem
    return FolderSpec(path=path, entry=PackageEntry("birds", module or name, function))


async def load(loader: ProcessLoader, spec: FolderSpec) -> LoadedFolder:
    [folder] = await loader.load([spec])
    return folder


def names_of(description: FolderDescription) -> list[str]:
    return [tool.name for tool in description.tools]


def reasons_of(description: FolderDescription) -> list[str]:
    return [problem.reason for problem in description.problems]


async def test_a_module_says_of_its_tools_what_a_folder_says(packages, loader):
    spec = installed(
        packages / "mochi_birds",
        '''
        from mochi_birds.words import hello

        __all__ = ["greet", "shoot"]
        __destructive__ = ["shoot"]
        __timeouts__ = {"greet": 2.5}

        def greet() -> str:
            """Greet."""
            return hello

        def shoot() -> str:
            """Shoot."""
            return "bang"

        def helper() -> str:
            """Help."""
            return ""
        ''',
    )
    (packages / "mochi_birds" / "words.py").write_text(f"hello = 'tweet'\n{GREET}")
    folder = await load(loader, spec)
    tools = {tool.name: tool for tool in folder.description.tools}
    said = {name: (tool.destructive, tool.timeout) for name, tool in tools.items()}
    assert said == {"greet": (False, 2.5), "shoot": (True, None)}
    assert folder.description.groups == {"birds": ("greet", "shoot")}
    assert await folder.call("greet", {}) == "tweet"


async def test_two_functions_of_one_name_are_two_tools(packages, loader):
    spec = installed(
        packages / "mochi_birds",
        '''
        __all__ = ["tweet", "sing"]

        def make(text):
            def sound() -> str:
                """Make a sound."""
                return text
            return sound

        tweet, sing = make("tweet"), make("la la")
        ''',
    )
    folder = await load(loader, spec)
    assert folder.description.groups == {"birds": ("tweet", "sing")}
    assert reasons_of(folder.description) == []
    assert [await folder.call(name, {}) for name in ("tweet", "sing")] == ["tweet", "la la"]


async def test_without_all_the_functions_of_the_module_are_tools(packages, loader):
    code = f"from textwrap import dedent\n{GREET}\n"
    folder = await load(loader, installed(packages / "mochi_birds.py", code))
    assert names_of(folder.description) == ["greet"]
    assert reasons_of(folder.description) == []


@pytest.mark.parametrize("function", ["greet", "Bird.greet"])
async def test_an_entry_point_can_be_one_function(packages, loader, function):
    code = f"{GREET}\nother = greet\nclass Bird:\n    greet = staticmethod(greet)\n"
    folder = await load(loader, installed(packages / "mochi_birds", code, function=function))
    assert folder.description.groups == {"birds": ("greet",)}
    assert await folder.call("greet", {}) == "hello"


@pytest.mark.parametrize(
    ("code", "function", "reason"),
    [
        ("raise RuntimeError('no nest')", "", "RuntimeError: no nest"),
        ("import mochi_no_such_module", "", "No module named 'mochi_no_such_module'"),
        (GREET, "sing", "module 'mochi_birds.tools' has no attribute 'sing'"),
        ("greet = 5", "greet", "'greet' is not callable, but of type int"),
        ("__all__ = ['sing']", "", "__all__ names 'sing', which does not exist here"),
    ],
)
async def test_what_cannot_be_a_tool_is_said(packages, loader, code, function, reason):
    spec = installed(packages / "mochi_birds", code, function=function)
    description = (await load(loader, spec)).description
    assert names_of(description) == []
    [said] = reasons_of(description)
    assert reason in said


async def test_a_package_that_hangs_or_exits_hurts_no_other(packages):
    specs = [
        installed(packages / "mochi_hanging.py", "import threading\nthreading.Event().wait()"),
        installed(packages / "mochi_exiting.py", "import os\nos._exit(3)"),
        installed(packages / "mochi_birds.py", GREET),
    ]
    async with process_loader(start_seconds=1) as impatient:
        hanging, exiting = [await load(impatient, spec) for spec in specs[:2]]
    async with process_loader(start_seconds=100) as loader:
        birds = await load(loader, specs[2])
    assert reasons_of(hanging.description) == ["The tools did not load within 1 seconds."]
    assert len(reasons_of(exiting.description)) == 1
    assert names_of(birds.description) == ["greet"]


@pytest.mark.parametrize("path", ["mochi_birds", "mochi_birds.py"])
async def test_a_new_version_is_loaded_by_the_running_server(packages, loader, path):
    spec = installed(packages / path, GREET)
    source = DirectorySource(spec, loader=loader, default_timeout=60)
    assert [tool.name for tool in await source.tools()] == ["greet"]
    installed(packages / path, GREET.replace("greet()", "salute()"))
    assert [tool.name for tool in await source.tools()] == ["salute"]
    await source.aclose()
