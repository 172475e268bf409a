"""Export a session, with its files where the format can have them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import suppress
from enum import Enum
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ...core.aio import in_thread
from ...errors import AttachmentNotFound
from ..attachments import AttachmentStore
from ..manager import SessionManager
from ..session import ChatSession
from .html_page import as_html
from .markdown import as_markdown
from .training import as_training_line


class ExportFormat(str, Enum):
    """The format of an exported session."""

    JSON = "json"
    """The session file itself, byte for byte."""
    MARKDOWN = "markdown"
    JSONL = "jsonl"
    """A line ``{"messages": […]}`` as for fine-tuning, in the form of OpenAI's API."""
    HTML = "html"
    """A page that needs nothing else."""
    ZIP = "zip"
    """An archive of the session file and its attachments."""

    @property
    def suffix(self) -> str:
        return ".md" if self is ExportFormat.MARKDOWN else f".{self.value}"

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ExportFormat.JSON: "application/json",
    ExportFormat.MARKDOWN: "text/markdown; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.HTML: "text/html; charset=utf-8",
    ExportFormat.ZIP: "application/zip",
}


async def export_session(
    sessions: SessionManager,
    attachments: AttachmentStore,
    session_id: str,
    to: ExportFormat = ExportFormat.JSON,
) -> bytes:
    """Return the stored session in this format.

    Raises:
        SessionNotFound, SessionUnreadable, StorageError.
    """
    if to is ExportFormat.ZIP:
        content, files = await read_with_files(sessions, attachments, session_id)
        return await in_thread(_archive, session_id, content, files)
    session = await sessions.get(session_id)
    if to is ExportFormat.JSON:
        content, _ = await sessions.storage.read(session_id)
        return content
    if to is ExportFormat.MARKDOWN:
        return (await in_thread(as_markdown, session)).encode("utf-8", "replace")
    files = await _files_of(session, attachments)
    if to is ExportFormat.JSONL:
        return await in_thread(as_training_line, session, files)
    return (await in_thread(as_html, session, files)).encode("utf-8", "replace")


async def read_with_files(
    sessions: SessionManager,
    attachments: AttachmentStore,
    session_id: str,
    known: Container[str] = (),
) -> tuple[bytes, dict[str, bytes]]:
    """Return a session file, and by their ids its attachments that are there and not known.

    Raises:
        SessionNotFound, SessionUnreadable, StorageError.
    """
    session = await sessions.get(session_id)
    content, _ = await sessions.storage.read(session_id)
    return content, await _files_of(session, attachments, known)


def _archive(session_id: str, content: bytes, files: dict[str, bytes]) -> bytes:
    """Return an archive that is the same for the same content."""
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        add_session(archive, f"{session_id}.json", content, files)
    return buffer.getvalue()


def add_session(archive: ZipFile, name: str, content: bytes, files: Mapping[str, bytes]) -> None:
    """Add a session to an archive, and its attachments in a folder beside it."""
    members = {name: content}
    members |= {f"attachments/{file}": files[file] for file in sorted(files)}
    for member, data in members.items():
        archive.writestr(ZipInfo(member), data, ZIP_DEFLATED)


async def _files_of(
    session: ChatSession, attachments: AttachmentStore, known: Container[str] = ()
) -> dict[str, bytes]:
    """Return the attachments that are there, and not known already, by their ids."""
    files: dict[str, bytes] = {}
    for entry in session.attachments():
        if (attachment_id := str(entry["attachment_id"])) not in known:
            with suppress(AttachmentNotFound):
                files[attachment_id] = await attachments.read(session.session_id, attachment_id)
    return files
