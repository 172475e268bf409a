"""Archives of exports: their conversations, and the files that belong to them."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final
from zipfile import BadZipFile, ZipFile, ZipInfo

from ...errors import CannotImport
from .conversation import SourceFile

MAGIC: Final = b"PK\x03\x04"
MAX_DIRECTORY_BYTES: Final = 32_000_000
"""Size of the list of files in an archive, which is read into memory: about 300,000 files."""
MAX_RATIO: Final = 200
"""How many times larger a file may be than what it is compressed to; JSON comes to about 20."""
SMALL: Final = 1_000_000
"""Bytes; smaller files may have any ratio."""

_CONVERSATIONS = re.compile(r"(?:.*/)?conversations[^/]*\.json", re.IGNORECASE)
_OTHER_JSON = re.compile(r".*\.(?:json|jsonl)", re.IGNORECASE)
_FILE_ID = re.compile(
    r"[0-9a-f]{64}|file[-_][0-9A-Za-z]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_END = struct.Struct("<4s4H2LH")
_END_MAGIC: Final = b"PK\x05\x06"
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_64_MAGIC: Final = b"PK\x06\x06"
_FILE_ERRORS = (BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError, zlib.error)


class Archive:
    """A zip archive whose directory fits into memory, and whose members are not too large."""

    def __init__(self, file: BinaryIO, max_file_bytes: int) -> None:
        """Read the directory.

        Args:
            file: The archive, open for reading.
            max_file_bytes: Of a file that belongs to a message; larger ones are read up to there.

        Raises:
            CannotImport: It is damaged, or its directory is too large.
        """
        _check_directory(file)
        self._max_file_bytes = max_file_bytes
        try:
            self._zip = ZipFile(file)
        except _FILE_ERRORS as error:
            raise CannotImport(f"not a readable zip archive ({error})") from error
        members = [info for info in self._zip.infolist() if not info.is_dir()]
        self.conversations = [
            info for info in members if _CONVERSATIONS.fullmatch(info.filename)
        ] or [info for info in members if _OTHER_JSON.fullmatch(info.filename)]
        self._files = {
            match[0]: info
            for info in members
            if (match := _FILE_ID.match(Path(info.filename).name)) is not None
        }
        self._unused = {info.filename for info in members}
        self._unused -= {info.filename for info in self.conversations}

    @property
    def unused(self) -> int:
        """How many files of the archive have neither conversations nor belong to any."""
        return len(self._unused)

    @contextmanager
    def open(self, info: ZipInfo) -> Iterator[IO[bytes]]:
        """Open a member that holds conversations.

        Raises:
            CannotImport: It would be too large, or is damaged, also while it is read.
        """
        if info.file_size > max(SMALL, MAX_RATIO * info.compress_size):
            raise CannotImport(
                f"it is compressed to less than 1/{MAX_RATIO} of its size", place=info.filename
            )
        try:
            # It never inflates to more than the size in the directory.
            with self._zip.open(info) as member:
                yield member
        except _FILE_ERRORS as error:
            raise CannotImport(
                f"it cannot be read from the archive ({error})", place=info.filename
            ) from error

    def find(self, file_id: str) -> SourceFile | None:
        info = self._files.get(file_id)
        if info is None:
            return None
        self._unused.discard(info.filename)
        return SourceFile(info.filename, lambda: self._read(info))

    def _read(self, info: ZipInfo) -> bytes:
        with self.open(info) as member:
            return member.read(self._max_file_bytes + 1)


def _check_directory(file: BinaryIO) -> None:
    """Read how large the directory is, before it is read.

    The layout is that of APPNOTE.TXT of PKWARE, sections 4.3.14 and 4.3.16.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - 65_535 - _END.size))
    tail = file.read()
    at = tail.rfind(_END_MAGIC)
    end = _END.unpack_from(tail, at) if 0 <= at <= len(tail) - _END.size else None
    at_64 = tail.rfind(_END_64_MAGIC)
    if end is None:
        raise CannotImport("not a readable zip archive (its end is missing)")
    directory = end[5]
    if directory == 0xFFFFFFFF and 0 <= at_64 <= len(tail) - _END_64.size:  # noqa: PLR2004
        directory = _END_64.unpack_from(tail, at_64)[8]
    if directory > MAX_DIRECTORY_BYTES:
        raise CannotImport("the archive has too many files")
    file.seek(0)
