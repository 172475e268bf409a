"""Documents in one folder, ``files`` beside the folder of the agents; nothing else is touched."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).absolute().parents[2] / "files"
"""The one folder that the researcher sees. Change this line to give it another one."""

NOTES = "notes"
"""The sub-folder of its notes."""

MOST_DOCUMENTS = 500
MOST_MATCHES = 60
CHARACTERS = 12_000
"""Of a document, in one call."""
AROUND = 160
"""Characters that are shown around a match."""
LARGEST = 1_000_000
"""Bytes of a document."""


def list_documents() -> str:
    """List the documents that there are, one path and its size on each line."""
    found: list[str] = []
    for place in _documents():
        if len(found) == MOST_DOCUMENTS:
            found.append(f"... and more than these {MOST_DOCUMENTS}.")
            break
        found.append(f"{_shown(place)} ({place.lstat().st_size} bytes)")
    return "\n".join(found) or "There are no documents."


def search_documents(words: str) -> str:
    """Find the places in all documents where a word, or some words in a row, stand.

    Args:
        words: What to look for, literally; capitals do not matter.
    """
    wanted = re.compile(re.escape(words.strip()), re.IGNORECASE)
    if not words.strip():
        raise ValueError("There is nothing to look for: 'words' is empty.")
    found: list[str] = []
    for place in _documents():
        text = _text_or_nothing(place)
        for match in wanted.finditer(text):
            begin, end = max(match.start() - AROUND, 0), match.end() + AROUND
            found.append(f"{_shown(place)}, at {begin}: {' '.join(text[begin:end].split())}")
            if len(found) == MOST_MATCHES:
                return "\n".join([*found, f"... and perhaps more than these {MOST_MATCHES}."])
    return "\n".join(found) or f"No document has {words!r} in it."


def read_document(path: str, start: int = 0) -> str:
    """Read a document, or a part of it.

    Args:
        path: The document as list_documents names it, such as "notes/today.txt".
        start: The first character to read, from 0; for the rest of a long document.
    """
    if start < 0:
        raise ValueError("'start' must be 0 or more.")
    text = _text(_inside(path))
    part = text[start : start + CHARACTERS]
    if len(text) > start + CHARACTERS:
        part += f"\n[The document goes on; read further with start={start + CHARACTERS}.]"
    return part or ("The document is empty." if start == 0 else "The document ends before that.")


def save_note(title: str, text: str) -> str:
    """Keep a note as a new document in the folder "notes"; nothing is ever overwritten.

    Args:
        title: What it is about, in a few words; the name of the document comes from it.
        text: The note, with its sources.
    """
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "note"
    today = f"{datetime.now().astimezone():%Y-%m-%d}"
    _inside(NOTES).mkdir(parents=True, exist_ok=True)
    for number in range(1, 100):
        path = f"{NOTES}/{name}{f'-{number}' if number > 1 else ''}.md"
        try:
            with _inside(path).open("x", encoding="utf-8") as file:
                file.write(f"# {title.strip()}\n\n{today}\n\n{text.strip()}\n")
        except FileExistsError:
            continue
        return f"Kept as {path}."
    raise ValueError("There are too many notes with this title; choose another one.")


def _inside(path: str) -> Path:
    """The absolute place of a path that is given relative to the folder.

    Raises:
        ValueError: it would lead out of the folder, or through a link; or it cannot be a path.
    """
    relative = PurePosixPath(path.strip())
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{path!r} is not a path that list_documents shows.")
    root = FOLDER.resolve()
    place = root / relative
    try:
        # A link could lead anywhere, and be changed after this look.
        straight = place.resolve() == place
    except (OSError, RuntimeError, ValueError):
        straight = False
    if not straight:
        raise ValueError(f"{path!r} leads through a link, or cannot be a path.")
    return place


def _text(place: Path) -> str:
    """The text of a plain file.

    Raises:
        ValueError: there is no such file, or it is too large, or no text.
    """
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        known = "list_documents shows what there is"
        raise ValueError(f"There is no document {_shown(place)!r}; {known}.") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{_shown(place)!r} is not a document.")
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST or b"\0" in content:
        raise ValueError(f"{_shown(place)!r} is too large, or is no text.")
    return content.decode("utf-8", "replace")


def _text_or_nothing(place: Path) -> str:
    try:
        return _text(place)
    except ValueError:
        return ""


def _documents() -> Iterator[Path]:
    """The plain files below the folder by name; nothing hidden, and no link is followed."""
    for here, folders, files in os.walk(FOLDER.resolve()):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            place = Path(here, name)
            if not name.startswith(".") and place.is_file() and not place.is_symlink():
                yield place


def _shown(place: Path) -> str:
    path = place.relative_to(FOLDER.resolve()).as_posix()
    return path.encode("utf-8", "replace").decode("utf-8")
