"""Export several sessions as one archive, and how files of sessions are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import BinaryIO
from zipfile import ZipFile

from ...core.aio import in_thread
from ...errors import JSONObject, SessionNotFound, SessionUnreadable
from ..attachments import AttachmentStore
from ..catalogue.listing import SessionPage
from ..manager import SessionManager
from .exporter import ExportFormat, add_session, export_session, read_with_files

FILE_TITLE_CHARACTERS = 50
"""Of a title, in the name of a file."""
PROBLEMS = "problems.txt"
"""Member that names the sessions which could not be read, and why."""

_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff/\\:*?"<>|]')
"""What a name of a file cannot have on some system, or a terminal should not show."""


def file_stems(lines: Sequence[JSONObject]) -> dict[str, str]:
    """Return what the names of the files begin with, by the ids of the sessions."""
    stems = {}
    for line in lines:
        title = str(line["title"] or line["preview"] or "")[:FILE_TITLE_CHARACTERS]
        words = _UNSAFE.sub(" ", f"{str(line['created_at'])[:10]} {title}").split()
        stems[str(line["session_id"])] = " ".join(words).strip(". ")
    counts = Counter(["", *(stem.casefold() for stem in stems.values())])
    return {
        session_id: stem if counts[stem.casefold()] == 1 else f"{stem} {session_id}".strip()
        for session_id, stem in stems.items()
    }


def _chosen_files(
    page: SessionPage, session_ids: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the stems of the files of some sessions, or of all, and what is wrong with others.

    Raises:
        SessionNotFound: one of these is not there.
    """
    stems = file_stems(page.entries)
    damaged = {str(line["session_id"]): str(line["reason"]) for line in page.problems}
    for session_id in session_ids:
        if session_id not in stems and session_id not in damaged:
            raise SessionNotFound(session_id=session_id)
    chosen = frozenset(session_ids) or {*stems, *damaged}
    problems = [f"{each}: {reason}" for each, reason in damaged.items() if each in chosen]
    return {each: stem for each, stem in stems.items() if each in chosen}, problems


async def write_archive(
    file: BinaryIO,
    sessions: SessionManager,
    attachments: AttachmentStore,
    to: ExportFormat,
    session_ids: Sequence[str] = (),
) -> None:
    """Write an archive of these sessions, or of all that the caller sees.

    Each is a file, called by its date and title; with ``ExportFormat.ZIP`` the session file, and
    the attachments of all are in a folder beside them, which an import finds. Those that cannot be
    read are named in ``problems.txt``.

    Raises:
        SessionNotFound: one of these is not there.
        StorageError: the sessions cannot be listed or read.
    """
    stems, problems = _chosen_files(await sessions.list(), session_ids)
    with_files = to is ExportFormat.ZIP
    suffix = ExportFormat.JSON.suffix if with_files else to.suffix
    written: set[str] = set()
    archive = ZipFile(file, "w")
    for session_id, stem in stems.items():
        try:
            content, files = (
                await read_with_files(sessions, attachments, session_id, known=written)
                if with_files
                else (await export_session(sessions, attachments, session_id, to), {})
            )
        except (SessionNotFound, SessionUnreadable) as error:  # meanwhile
            problems.append(f"{session_id}: {error.message}")
            continue
        written |= files.keys()
        await in_thread(add_session, archive, f"{stem}{suffix}", content, files)
    if problems:
        archive.writestr(PROBLEMS, "".join(f"{line}\n" for line in problems))
    await in_thread(archive.close)
