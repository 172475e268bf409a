"""``mochi-workspace FOLDER``: an MCP server for the files of a folder, and commands in it."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import sys
from importlib.util import find_spec
from pathlib import Path

_SET_DUMPABLE = 4


def main(arguments: list[str] | None = None) -> int:
    """Serve the folder until standard input ends, and return the exit status.

    Raises:
        OSError: The folder cannot be opened.
    """
    _close_to_others()
    parser = argparse.ArgumentParser(
        prog="mochi-workspace",
        description=(
            "An MCP server, over standard input and output, that reads, writes, lists and searches "
            "the files of a folder, and runs commands in it. The file tools cannot leave the "
            "folder; commands can do what you can: start the server in a sandbox."
        ),
    )
    parser.add_argument("folder", type=Path, help="the folder; it must exist")
    folder = parser.parse_args(arguments).folder.absolute()
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    if find_spec("mcp") is None:
        parser.error("the package mcp is missing: pip install 'mochi-server[mcp]'")
    from .command import CommandRunner  # noqa: PLC0415
    from .server import serve  # noqa: PLC0415 - takes time, and is not needed for --help
    from .tools import WorkspaceTools  # noqa: PLC0415

    asyncio.run(serve(WorkspaceTools(folder, CommandRunner(adopts=True))))
    return 0


def _close_to_others() -> None:
    """Keep commands, which have the same user, from opening the files of this process.

    They would else speak to the client by ``/proc/PID/fd/1``. What is executed is open again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
