"""Import files: exports of other programs, and sessions that were exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.aio import in_thread, in_thread_to_completion
from ...core.progress import Advance
from ...errors import CannotImport, Forbidden, SessionExists, StorageError
from ..attachments import AttachmentReader, AttachmentStore
from ..manager import SessionManager
from .conversation import Files, SourceConversation
from .fields import LeftOut
from .reading import Item, SessionFile, read_export
from .report import ImportReport
from .session_file import import_session_file
from .writer import ConversationWriter

MOCHI: Final = "mochi"
NOT_DONE: Final = "Nothing was overwritten: it can only be imported with a new id."


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Makes sessions of files."""

    sessions: SessionManager
    attachments: AttachmentStore
    """Of those sessions."""
    reader: AttachmentReader
    max_bytes: int
    """Size of the largest conversation."""
    check_model: Callable[[str], Awaitable[None]] | None = None
    """Called with the model of a new session: raises Forbidden if the caller may not make it.
    None: all may be made."""

    async def run(
        self,
        path: Path,
        *,
        model: str | None = None,
        new_id: bool = False,
        advance: Advance = lambda _done, _total: None,
    ) -> ImportReport:
        """Import a file; nothing is ever overwritten, and nothing is made twice.

        One conversation is in memory at a time. What was imported before an error stays.

        Args:
            path: The file.
            model: Of the new sessions; None: the one that the source names.
            new_id: Give a session file another id than its own.
            advance: Takes how many bytes are done, and of how many.

        Raises:
            OSError: The file cannot be read.
            StorageError: Nothing could be written. Later it is a problem of the report.
        """
        report = ImportReport()
        writer = ConversationWriter(
            self.sessions, self.attachments, self.reader, model, check_model=self.check_model
        )
        items = read_export(
            path, limit=self.max_bytes, max_file_bytes=self.reader.max_bytes, advance=advance
        )
        with closing(items):
            try:
                while (item := await in_thread_to_completion(next, items, None)) is not None:
                    await self._take(item, report, writer, new_id=new_id)
            except CannotImport as error:
                report.add_problem(error)
            except StorageError as error:
                if not report.sessions:
                    raise
                report.add_problem(CannotImport(error.message))
        return report

    async def _take(
        self, item: Item, report: ImportReport, writer: ConversationWriter, *, new_id: bool
    ) -> None:
        try:
            match item:
                case CannotImport():
                    report.add_problem(item)
                case SourceConversation():
                    report.program = item.program
                    report.sessions += await writer.store(item)
                    report.add_left_out(item.left_out)
                case SessionFile():
                    report.program = MOCHI
                    done = await import_session_file(
                        self.sessions,
                        item.content,
                        new_id=new_id,
                        check_model=self.check_model,
                    )
                    report.sessions.append(done)
                    # Also of one that is there: its first import may have been killed before that.
                    left_out = await self._keep_files(done.session_id, item.files)
                    if done.outcome == "created":
                        report.add_left_out(left_out)
                case Counter():
                    report.add_left_out(item)
        except (CannotImport, SessionExists) as error:
            report.add_problem(_placed(error, item))
        except Forbidden as error:
            report.add_problem(_placed(CannotImport(error.message), item))

    async def _keep_files(self, session_id: str, files: Files) -> LeftOut:
        """Keep the attachments of a session file, and return what is not there."""
        left_out: LeftOut = Counter()
        session = await self.sessions.get(session_id)
        names = {
            str(entry["attachment_id"]): str(entry.get("name") or "")
            for entry in session.attachments()
        }
        for attachment_id, name in sorted(names.items()):
            file = files.find(attachment_id)
            if file is None:
                left_out["file that is not in the export"] += 1
                continue
            try:
                content = await in_thread(file.read)
            except CannotImport:
                left_out["file that is damaged"] += 1
                continue
            if isinstance(content, str) or len(content) > self.reader.max_bytes:
                left_out["file that is too large"] += 1
            else:
                await self.attachments.put(session_id, content, "", name or None)
        return left_out


def _placed(error: CannotImport | SessionExists, item: Item) -> CannotImport:
    """Return the error with the program and the place of what could not be stored."""
    own = error.place if isinstance(error, CannotImport) else ""
    reason = error.reason if isinstance(error, CannotImport) else f"{error.message} {NOT_DONE}"
    if isinstance(item, SourceConversation):
        return CannotImport(reason, place=own or item.place, program=item.program)
    return CannotImport(reason, place=own, program=MOCHI)
