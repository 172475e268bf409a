"""Tools in a sandbox do their job, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mochi_server.backends import build_tool_loader
from mochi_server.config import load_settings
from mochi_server.sandbox.bubblewrap import BubblewrapSandbox
from mochi_server.tools.base import ToolFailed
from mochi_server.tools.loading import LoadedFolder
from mochi_server.tools.process.confinement import ToolConfinement, read_needs
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.tool_folders import tool_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

TOOLS = '''
    import json
    import os
    import socket
    from pathlib import Path

    import anyio

    __sandbox__ = {"writable": ["files"]}


    def read(path: str) -> str:
        """Read a file."""
        return Path(path).read_text()


    def write(path: str) -> str:
        """Write a file."""
        Path(path).write_text("written")
        return "written"


    def own_code() -> str:
        """Read this file."""
        return Path(__file__).read_text()


    def variables() -> str:
        """Show the environment."""
        return json.dumps(dict(os.environ))


    def reach(port: int) -> str:
        """Connect to a port of the machine."""
        socket.create_connection(("127.0.0.1", port), 2).close()
        return "reached"


    async def wait() -> str:
        """Use an installed package."""
        await anyio.sleep(0)
        return "waited"


    def leave() -> str:
        """Exit."""
        os._exit(3)


    def fill() -> str:
        """Take memory that no limit of a process counts."""
        import mmap
        taken = mmap.mmap(-1, 2_000_000_000)
        for _ in range(2000):
            taken.write(b"x" * 1_000_000)
        return "filled"
'''


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / ".mochi").mkdir(parents=True)
    (folder / ".mochi" / "state").write_text("state")
    (folder / ".env").write_text("KEY=secret")
    (folder / "mcp.json").write_text("{}")
    (folder / "notes.txt").write_text("notes")
    return folder


@pytest_asyncio.fixture
async def folder(data: Path) -> AsyncIterator[LoadedFolder]:
    sandbox = ToolConfinement(sandbox=bubblewrap_or_skip(), data=data)
    loader = ProcessLoader(WorkerOptions(working_dir=data, memory_mb=200, confinement=sandbox))
    [loaded] = await loader.load([tool_folder(data / "tools", TOOLS)])
    assert loaded.description.problems == ()
    yield loaded
    await loader.aclose()


async def test_a_tool_reads_the_data_folder_and_its_own_code(folder: LoadedFolder) -> None:
    assert await folder.call("read", {"path": "notes.txt"}) == "notes"
    assert "def own_code" in await folder.call("own_code", {})


async def test_a_tool_uses_installed_packages(folder: LoadedFolder) -> None:
    assert await folder.call("wait", {}) == "waited"


async def test_links_of_the_data_folder_show_nothing_else(data: Path) -> None:
    (data / "link").symlink_to("notes.txt")
    (data / "to-state").symlink_to(".mochi")
    (data / "to-etc").symlink_to("/etc")
    sandbox = ToolConfinement(sandbox=bubblewrap_or_skip(), data=data)
    loader = ProcessLoader(WorkerOptions(working_dir=data.parent, confinement=sandbox))
    [folder] = await loader.load([tool_folder(data / "tools", TOOLS)])
    assert await folder.call("read", {"path": f"{data}/link"}) == "notes"
    for name in ("to-state/state", "to-etc/shadow", ".env"):
        with pytest.raises(ToolFailed, match="No such file"):
            await folder.call("read", {"path": f"{data}/{name}"})
    await loader.aclose()


async def test_a_tool_writes_only_where_its_package_says(folder: LoadedFolder, data: Path) -> None:
    assert await folder.call("write", {"path": "files/new"}) == "written"
    assert (data / "files" / "new").read_text() == "written"
    for path in ("new", "tools/__init__.py", "tools/new.py", "files/../new"):
        with pytest.raises(ToolFailed, match="Read-only file system"):
            await folder.call("write", {"path": path})


async def test_secrets_of_the_data_folder_are_hidden(folder: LoadedFolder, data: Path) -> None:
    """Also when they are replaced, or new, while the tool's process runs."""
    for name in ("mcp.json", ".env", "mcp-config.json"):
        (data / "notes.txt").rename(data / name)
        (data / "notes.txt").write_text("notes")
    for name in (".env", "mcp.json", "mcp-config.json", ".mochi/state"):
        with pytest.raises(ToolFailed, match="No such file"):
            await folder.call("read", {"path": name})


@pytest.mark.parametrize("place", ["servers.json", "config/servers.json", "tools/servers.json"])
async def test_secrets_are_hidden_wherever_settings_say_they_are(
    data: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, variables = data / place, data / "config" / "keys"
    (data / "config").mkdir()
    (data / "config" / "other").write_text("other")
    variables.write_text("KEY=secret")
    key = data / "config" / "openai"
    key.write_text("secret")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(key))
    (data / "tokens.json").write_text("{}")
    (data / "audit.jsonl.1").write_text("{}")
    package = tool_folder(data / "tools", TOOLS)
    server = {"command": "x", "envFile": str(variables)}
    config.write_text(json.dumps({"mcpServers": {"x": server}}))
    bubblewrap_or_skip()
    settings = load_settings(data_dir=data, mcp_config=Path(place), tool_sandbox="bubblewrap")
    loader = build_tool_loader(settings)
    [folder] = await loader.load([package])
    assert folder.description.problems == ()
    secrets = ["tokens.json", "audit.jsonl.1", str(config), str(variables), str(key)]
    for _ in range(2):
        for path in secrets:
            with pytest.raises(ToolFailed, match="No such file"):
                await folder.call("read", {"path": path})
        for path in (config, variables, key):  # as programs replace files
            (data / "new").write_text("secret")
            (data / "new").rename(path)
    assert await folder.call("read", {"path": "config/other"}) == "other"
    assert "def own_code" in await folder.call("own_code", {})
    await loader.aclose()


async def test_a_tool_reaches_nothing_without_the_network(
    folder: LoadedFolder, unused_tcp_port: int
) -> None:
    with pytest.raises(ToolFailed, match="refused"):
        await folder.call("reach", {"port": unused_tcp_port})


async def test_the_home_is_not_that_of_the_server(folder: LoadedFolder) -> None:
    assert '"HOME": "/tmp"' in await folder.call("variables", {})


async def test_the_end_of_a_process_is_explained(folder: LoadedFolder) -> None:
    with pytest.raises(ToolFailed, match="ended with exit code 3"):
        await folder.call("leave", {})
    with pytest.raises(ToolFailed, match="went over a limit of its sandbox"):
        await folder.call("fill", {})
    assert await folder.call("wait", {}) == "waited"


async def test_without_a_sandbox_no_tool_is_offered(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = ToolConfinement(sandbox=BubblewrapSandbox(), data=data)
    loader = ProcessLoader(WorkerOptions(working_dir=data, confinement=sandbox))
    [loaded] = await loader.load([tool_folder(data / "tools", TOOLS)])
    await loader.aclose()
    [problem] = loaded.description.problems
    assert loaded.description.tools == ()
    assert problem.reason == (
        "MOCHI_TOOL_SANDBOX: the program bwrap is not installed (package bubblewrap)"
    )
    assert loaded.description.is_transient


async def test_folders_do_not_share_what_they_need(data: Path) -> None:
    code = '''
        __sandbox__ = {{"writable": ["{0}"]}}
        def write_{0}(path: str) -> str:
            """Write a file."""
            open(path, "w").close()
            return "written"
    '''
    folders = [tool_folder(data / name, code.format(name)) for name in ("one", "two")]
    confinement = ToolConfinement(sandbox=bubblewrap_or_skip(), data=data)
    loader = ProcessLoader(WorkerOptions(working_dir=data, confinement=confinement))
    one, two = await loader.load(folders)
    assert await one.call("write_one", {"path": "one/file"}) == "written"
    with pytest.raises(ToolFailed, match="Read-only"):
        await two.call("write_two", {"path": "one/file"})
    await loader.aclose()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{'writable': [f()]}", "is not a dict of constants"),
        ("{'Network': True}", "is not a dict of constants"),
        ("['files']", "is not a dict of constants"),
        ("{'network': 1}", "neither True nor False"),
        ("{'writable': 'files'}", "not a list of texts"),
        ("{'writable': ['../other']}", "leads out of the data folder"),
        ("{'writable': ['link']}", "leads out of the data folder"),
        ("{'readable': ['none']}", "is not there"),
        ("{'writable': ['/none/there']}", "is not there"),
        ("{'writable': ['.']}", "is the whole data folder"),
        ("{'readable': ['.mochi']}", "is not for tools"),
        ("{'readable': ['to-state']}", "is not for tools"),
        ("{'readable': ['tokens.json']}", "is not for tools"),
        ("{'readable': ['config/servers.json']}", "is not for tools"),
        ("{'writable': ['config']}", "has files that are not for tools"),
    ],
)
def test_needs_that_cannot_be_met_are_refused(data: Path, value: str, reason: str) -> None:
    (data / "link").symlink_to("/etc")
    (data / "to-state").symlink_to(".mochi")
    servers = data / "config" / "servers.json"
    for path in (servers, data / "tokens.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    folder = tool_folder(data / "tools", f"__sandbox__ = {value}")
    confinement = ToolConfinement(
        sandbox=BubblewrapSandbox(), data=data, secret_files=lambda: [servers]
    )
    with pytest.raises(ToolFailed, match=reason):
        confinement.spec(folder, working_dir=data, environment={}, keep_fds=(), memory=1)


def test_the_needs_of_the_packages_of_a_folder_are_added_up(tmp_path: Path) -> None:
    tool_folder(tmp_path, "__sandbox__: dict = {'readable': ['/srv']}")
    tool_folder(tmp_path / "mail", "__sandbox__ = {'network': True}")
    needs = read_needs(tmp_path, subfolders=True)
    assert (needs.readable, needs.network) == (("/srv",), True)
    assert not read_needs(tmp_path, subfolders=False).network
