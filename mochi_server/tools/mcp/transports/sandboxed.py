"""MCP servers in sandboxes; among them the built-in server of sessions' workspaces."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path, PurePosixPath
from typing import get_args

from ....core.aio import in_thread
from ....core.files import make_folder
from ....sandbox import Sandbox, SandboxFolder, SandboxName, SandboxSpec, make_sandbox
from ....workspace.session_folders import SessionFolders
from ..config.entry import McpOptions, McpServerConfig
from ..servers.connection import ServerFailed
from .log import StdioCommand

WORKSPACE = "workspace"
"""Name of the built-in server."""

AUTO = "auto"


def workspace_server(sandbox: str) -> McpServerConfig:
    """Return the built-in server, which each session has for itself."""
    return McpServerConfig(
        name=WORKSPACE,
        command=sys.executable,
        # Isolated: Python would import what lies in the working directory.
        args=["-I", "-m", "mochi_server.workspace", "."],
        options=McpOptions(trusted=True, scope="session", sandbox=sandbox),
    )


class SandboxLauncher:
    """Starts servers in the sandboxes that their configuration names.

    The built-in server gets the folder of its session. Another one gets its working directory, if
    it names one, and no network.

    Args:
        folders: The folders of sessions.
        listing_folder: An empty folder for the built-in server of no session, which is asked only
            which tools there are.
    """

    def __init__(self, folders: SessionFolders, *, listing_folder: Path) -> None:
        self._folders = folders
        self._listing_folder = listing_folder
        self._working: dict[str, Sandbox] = {}
        """Drivers that were tried and work."""
        self._trying = asyncio.Lock()

    async def problem(self, name: str) -> str | None:
        """Return why a sandbox does not work here, or None."""
        try:
            await self._sandbox(name)
        except ServerFailed as error:
            return str(error)
        return None

    async def __call__(
        self, config: McpServerConfig, command: StdioCommand, session_id: str | None
    ) -> StdioCommand:
        """Return the command to start instead.

        Raises:
            ServerFailed: The sandbox does not work.
            SessionNotFound: The session was deleted.
            StorageError: Its folder cannot be made.
        """
        if config.options.sandbox is None:
            return command
        sandbox = await self._sandbox(config.options.sandbox)
        if config.name == WORKSPACE:
            spec = SandboxSpec.of_workspace(await self._folder(session_id))
        else:
            spec = _spec_of(config, command)
        confined = sandbox.command(command.argv, spec)
        return StdioCommand(argv=confined.argv, env=confined.env)

    async def _folder(self, session_id: str | None) -> Path:
        if session_id is not None:
            return await self._folders.make(session_id)
        await in_thread(make_folder, self._listing_folder, private=True)
        return self._listing_folder

    async def _sandbox(self, name: str) -> Sandbox:
        async with self._trying:
            if (working := self._working.get(name)) is not None:
                return working
            names: tuple[SandboxName | str, ...] = (AUTO, *get_args(SandboxName))
            if name not in names:
                raise ServerFailed(f"there is no sandbox {name!r}, only {', '.join(names)}")
            sandbox = make_sandbox(name)  # type: ignore[arg-type] # checked
            if (problem := await sandbox.problem()) is not None:
                raise ServerFailed(f"the sandbox {name!r} does not work here: {problem}")
            self._working[name] = sandbox
            return sandbox


def _spec_of(config: McpServerConfig, command: StdioCommand) -> SandboxSpec:
    own = {"HOME", "TMPDIR"} - config.env.keys()  # places that are not there inside
    environment = {name: value for name, value in command.env.items() if name not in own}
    if config.cwd is None:
        return SandboxSpec(environment=environment)
    workdir = PurePosixPath(config.cwd)
    folder = SandboxFolder(path=config.cwd.resolve(), inside=workdir, writable=True)
    return SandboxSpec(folders=[folder], workdir=workdir, environment=environment)
