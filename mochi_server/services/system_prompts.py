"""System prompts: ``.md`` and ``.txt`` files in one folder, which their owner may edit as well."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..aio import in_thread
from ..constants import PREVIEW_CHARACTERS, SYSTEM_PROMPT_CHARACTERS
from ..errors import InvalidRequest, PromptExists, PromptNotFound, StorageError

FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,123}\.(?:md|txt)")
"""What a prompt file may be called; anything else never reaches the file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSummary:
    """One prompt file in the list."""

    filename: str
    preview: str
    """The beginning in one line, at most 100 characters, cut with "..."."""
    word_count: int


class SystemPromptService:
    """Reads and writes the prompt files of one folder, which is made when the first is written.

    A file is replaced whole: whoever reads meanwhile sees the old or the new one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def read(self, filename: str) -> str:
        """The whole text.

        Raises:
            PromptNotFound: there is no such file, or it could not be a prompt's name.
            StorageError: it cannot be read.
        """
        return await in_thread(self._read, self._path(filename))

    async def create(self, filename: str, content: str) -> None:
        """Write a new file.

        Raises:
            InvalidRequest: the name or the text is not allowed.
            PromptExists: a file of that name is there; it is left alone.
            StorageError: it cannot be written.
        """
        if FILENAME.fullmatch(filename) is None:
            raise InvalidRequest(
                f"{filename!r} is not a name for a prompt file: letters, digits, '.', '_', '-' "
                "and spaces, a letter or digit first, .md or .txt last, at most 128 characters.",
                details={"field": "filename"},
            )
        check_content(content)
        await in_thread(self._write, self.folder / filename, content, new=True)

    async def update(self, filename: str, content: str) -> None:
        """Replace the text of a file.

        Raises:
            InvalidRequest: the text is not allowed.
            PromptNotFound, StorageError.
        """
        path = self._path(filename)
        check_content(content)
        await in_thread(self._write, path, content, new=False)

    async def delete(self, filename: str) -> None:
        """Remove a file.

        Raises:
            PromptNotFound, StorageError.
        """
        await in_thread(self._delete, self._path(filename))

    def _path(self, filename: str) -> Path:
        if FILENAME.fullmatch(filename) is None:
            raise PromptNotFound(filename=filename)
        return self.folder / filename

    def _read(self, path: Path) -> str:
        try:
            return read_file(path)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise PromptNotFound(filename=path.name) from error
        except OSError as error:
            raise _storage_error(path.name, error) from error

    def _write(self, path: Path, content: str, *, new: bool) -> None:
        try:
            if not new and not path.is_file():
                raise PromptNotFound(filename=path.name)
            replace_file(path, content.encode(), new=new)
        except FileExistsError as error:
            if not self.folder.is_dir():
                raise _storage_error(self.folder.name, error) from error
            raise PromptExists(filename=path.name) from error
        except OSError as error:
            raise _storage_error(path.name, error) from error

    def _delete(self, path: Path) -> None:
        try:
            path.unlink()
        except (FileNotFoundError, IsADirectoryError) as error:
            raise PromptNotFound(filename=path.name) from error
        except OSError as error:
            raise _storage_error(path.name, error) from error

    def _list(self) -> list[PromptSummary]:
        try:
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _storage_error(self.folder.name, error) from error
        found = []
        for name in names:
            if FILENAME.fullmatch(name) is None:
                continue
            try:
                found.append(summarize(name, self._read(self.folder / name)))
            except PromptNotFound:
                continue  # removed since we looked
        return found

    async def list(self) -> list[PromptSummary]:
        """Every prompt file, by name.

        Raises:
            StorageError: the folder cannot be read.
        """
        return await in_thread(self._list)


def check_content(content: str) -> None:
    """Refuse an empty or excessively long prompt.

    Raises:
        InvalidRequest: it is one of these.
    """
    if not content.strip():
        raise InvalidRequest("A system prompt must not be empty.", details={"field": "content"})
    if len(content) >= SYSTEM_PROMPT_CHARACTERS:
        raise InvalidRequest(
            f"A system prompt must be shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters; "
            f"this one has {len(content):,}.",
            details={"field": "content", "characters": len(content)},
        )


def summarize(filename: str, content: str) -> PromptSummary:
    """A prompt as the list shows it."""
    words = content.split()
    line = " ".join(words)
    cut = line[:PREVIEW_CHARACTERS] + ("..." if len(line) > PREVIEW_CHARACTERS else "")
    return PromptSummary(filename=filename, preview=cut, word_count=len(words))


def read_file(path: Path) -> str:
    """The text of a file.

    Raises:
        FileNotFoundError: nothing is there, or something that might never end (a pipe).
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(path)
        return file.read()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def replace_file(path: Path, content: bytes, *, new: bool) -> None:
    """Put the content at the path in one step; with ``new``, only where nothing is.

    Raises:
        FileExistsError: something is there, and it had to be new.
        OSError: the disk refused; what was there still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _storage_error(name: str, error: OSError) -> StorageError:
    return StorageError(
        f"System prompt {name!r} cannot be stored or read: {error.strerror or error}",
        details={"filename": name},
    )
