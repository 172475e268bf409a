"""Imports in tests: into sessions of a folder, and what became of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mochi_server.sessions import SessionManager
from mochi_server.sessions.attachments import (
    AttachmentReader,
    AttachmentStore,
    MemoryAttachmentStore,
)
from mochi_server.sessions.imports.importer import Importer
from mochi_server.sessions.imports.report import ImportReport
from mochi_server.sessions.storage.memory import MemoryStorage

LIMIT = 1_000_000
KEYS = ("thinking", "tool_calls", "tool_name", "tool_call_id", "model", "interrupted")


@dataclass
class Imports:
    """Sessions of a folder into which tests import."""

    folder: Path
    in_memory: bool = False
    """Whether the sessions are in memory instead."""

    def __post_init__(self) -> None:
        if self.in_memory:
            self.sessions = SessionManager(MemoryStorage())
            self.attachments: AttachmentStore = MemoryAttachmentStore()
        else:
            self.sessions = SessionManager(sessions_dir=self.folder / "sessions")
            self.attachments = AttachmentStore(self.folder / "attachments")

    async def run(self, content: Any, *, limit: int = LIMIT, **options: Any) -> ImportReport:
        """Import bytes, the JSON of a value, or the file of a path."""
        path = content
        if not isinstance(content, Path):
            path = self.folder / "import"
            path.write_bytes(
                content if isinstance(content, bytes) else json.dumps(content).encode()
            )
        importer = Importer(
            sessions=self.sessions,
            attachments=self.attachments,
            reader=AttachmentReader(max_bytes=LIMIT),
            max_bytes=limit,
        )
        return await importer.run(path, **options)

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        return (await self.sessions.get(session_id)).stored_messages()

    async def said(self, session_id: str) -> list[tuple[Any, ...]]:
        """Return role and text of each message, and a dict of what else it has if there is some."""
        said = []
        for message in await self.messages(session_id):
            more = {key: message[key] for key in KEYS if message.get(key) is not None}
            said.append((message["role"], message["content"], *([more] if more else [])))
        return said

    async def metadata(self, session_id: str) -> dict[str, Any]:
        return (await self.sessions.get(session_id)).metadata.model_dump()

    def stored(self, session_id: str) -> dict[str, Any]:
        path = self.folder / "sessions" / f"{session_id}.json"
        return json.loads(path.read_bytes())

    @property
    def files(self) -> dict[str, bytes]:
        """The stored sessions, by name."""
        return {path.name: path.read_bytes() for path in self.folder.glob("sessions/*.json")}
