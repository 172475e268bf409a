"""Which descriptions of MCP tools a person has approved: a server may change them at any time.

``approved_tools.json`` in the data folder belongs to the user: ``{server: {tool: hash}}``. A tool
that is not in it has not been approved; one with another hash has changed since it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ...core.aio import in_thread, in_thread_to_completion
from ...core.files import locked_file, read_plain, replace_file
from ...core.json_text import parse_json
from ...core.parsed_file import ParsedFile

logger = logging.getLogger(__name__)

MAX_BYTES = 10_000_000

Approval = Literal["unknown", "approved", "changed"]


class ApprovedTools:
    """The hashes of the descriptions that were approved, by server and tool.

    Without a path they end with this process.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else ParsedFile(path, _read)
        self._hashes: dict[str, dict[str, str]] = {}
        self._is_unreadable = False
        self._lock = asyncio.Lock()

    def approval_of(self, server: str, tool: str, digest: str) -> Approval:
        """Return whether a description is the one that was approved, as far as was read last."""
        if self._is_unreadable:
            return "changed"
        approved = self._hashes.get(server, {}).get(tool)
        if approved is None:
            return "unknown"
        return "approved" if approved == digest else "changed"

    async def refresh(self) -> None:
        """Read the file again if it has changed."""
        if self._file is not None:
            await in_thread(self._refresh, self._file)

    async def add(self, server: str, digests: Mapping[str, str], *, only_new: bool = False) -> None:
        """Approve tools of a server as they are described now.

        ``digests`` are hashes of descriptions, by tool; ``only_new`` leaves those alone that were
        approved before.
        """
        async with self._lock:
            await in_thread_to_completion(self._add, server, dict(digests), only_new=only_new)

    def _add(self, server: str, digests: dict[str, str], *, only_new: bool) -> None:
        if self._file is None:
            self._merge(server, digests, only_new=only_new)
            return
        path = self._file.path
        try:
            with locked_file(path):
                self._refresh(self._file)
                if not self._is_unreadable and self._merge(server, digests, only_new=only_new):
                    text = json.dumps(self._hashes, indent=2, sort_keys=True)
                    replace_file(path, [f"{text}\n".encode()], private=True)
        except OSError as error:
            logger.warning("What was approved of %s is not kept: %s", server, error)

    def _merge(self, server: str, digests: dict[str, str], *, only_new: bool) -> bool:
        before = self._hashes.get(server, {})
        after = {**digests, **before} if only_new else {**before, **digests}
        self._hashes[server] = after
        return after != before

    def _refresh(self, file: ParsedFile[dict[str, dict[str, str]]]) -> None:
        try:
            self._hashes = file.load() or {}
        except (OSError, ValueError) as error:
            if not self._is_unreadable:
                logger.warning("%s cannot be read: every MCP tool is asked about", file.path)
                logger.debug("%s", error)
            self._is_unreadable = True
            return
        self._is_unreadable = False


def _read(path: Path) -> dict[str, dict[str, str]]:
    stored = parse_json(read_plain(path, MAX_BYTES)[0])
    if not isinstance(stored, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - as json's
    for server, tools in stored.items():
        if not isinstance(tools, dict) or not all(isinstance(each, str) for each in tools.values()):
            raise ValueError(f"{server!r} is no object of hashes")
    return stored
