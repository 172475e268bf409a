"""What processes that crashed have left; all of it goes by itself, so it is worth a note only.

Lock files that nobody holds are none of it: they stay for the next time. Whether a lock is held is
not tried either: who tries has it for a moment, and may refuse a turn by that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..config import MochiServerSettings
from ..core.aio import in_daemon_thread
from ..core.leases import is_locked
from ..core.progress import counted
from ..runtime import Runtime
from ..sessions.storage.file_operations import LEFTOVER, LEFTOVER_SECONDS
from .findings import Finding, note


async def look_at_leftovers(runtime: Runtime) -> list[Finding]:
    """Channels without a process, and old temporary files."""
    return await in_daemon_thread(lambda: list(_leftovers(runtime.settings)))


def _leftovers(settings: MochiServerSettings) -> Iterator[Finding]:
    channels = [path for path in _in(settings.state_path / "channels") if _is_left(path)]
    if channels:
        yield note(
            f"{channels[0].parent} has {counted(len(channels), 'channel')} of processes that died.",
            "Nothing: the next process that asks for a confirmation removes them.",
        )
    for folder in (settings.sessions_path, settings.agent_chats_path):
        files = [path for path in _in(folder) if LEFTOVER.fullmatch(path.name) and _is_old(path)]
        if files:
            yield note(
                f"{folder} has {counted(len(files), 'temporary file')} of processes that died, "
                f"such as {files[0].name}.",
                "Nothing: a server removes them when it lists the sessions.",
            )


def _in(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _is_left(channel: Path) -> bool:
    """Whether a channel has no process; one that is being made has another name."""
    with suppress(OSError):
        return not channel.name.startswith(".") and not is_locked(channel / "owner")
    return False


def _is_old(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS
    return False
