"""The files of a workspace: read, write, list and delete them.

Programs that a model wrote can put anything into the folder, and change it at any moment: links,
pipes, folders that turn into links. Nothing here follows a path out of it, waits for another
program, or reads what is no ordinary file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

from .beneath import FOLDER, MAX_DEPTH, READ, components, open_beneath
from .removal import remove_tree

ROOT = "."
"""How the folder itself is named."""

_SORTED_ENTRIES = 100_000
"""Entries of one folder that are read before they are sorted; the others are left out."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}

Kind = Literal["file", "folder", "link", "other"]


class FileEntry(NamedTuple):
    """A file or folder of a list."""

    path: str
    """Below the workspace; bytes that are not UTF-8 are shown as ``\\xff``."""
    kind: Kind
    size: int
    modified_ns: int


class WorkspaceFolder:
    """An open folder whose files can be used; by several threads at the same time.

    All methods raise OSError: FileNotFoundError, or EXDEV, EPERM and others with a text that says
    what is wrong. Paths are relative to the folder; links are followed inside it, except as the
    last component of a path that is written or deleted.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, FOLDER | os.O_NOFOLLOW)

    def __enter__(self) -> WorkspaceFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._handle)

    def open_file(self, path: str) -> tuple[int, os.stat_result]:
        """Open a file for reading, and return its handle and status.

        A file with a second name (a hard link) is refused: it may be somebody else's, outside.
        """
        try:
            handle = open_beneath(self._handle, path, READ)
        except OSError as error:
            raise _explained(error, path) from error
        status = os.fstat(handle)
        reason = None
        if not stat.S_ISREG(status.st_mode):
            reason = f"It is {_kind_text(status)}, not a file"
        elif status.st_nlink > 1:
            reason = "It is a hard link: it has several names, perhaps outside of the folder"
        if reason is not None:
            os.close(handle)
            raise refusal(reason, path)
        return handle, status

    def read(self, path: str, most: int) -> bytes:
        """Return the content of a file, of at most so many bytes.

        Raises:
            OSError: also EFBIG, if it is longer.
        """
        handle, status = self.open_file(path)
        with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor
            content = file.read(most + 1) if status.st_size <= most else b""
        if status.st_size > most or len(content) > most:
            size = max(status.st_size, len(content))
            raise OSError(errno.EFBIG, f"It is too long: {size:,} bytes, of at most {most:,}", path)
        return content

    def write(self, path: str, parts: Iterable[bytes]) -> bool:
        """Replace or make a file and the folders above it, and return whether it is new.

        It is written beside the old file and renamed, so that no reader sees half of it, and
        nothing is written through a hard link.
        """
        names = self._names(path)
        parent = self._make_folders(names[:-1])
        try:
            old = _status(parent, names[-1])
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise refusal(f"It is {_kind_text(old)}, not a file", path)
            mode = 0o666 if old is None else old.st_mode & 0o777
            _replace(parent, names[-1], parts, mode, keep_mode=old is not None)
        finally:
            os.close(parent)
        return old is None

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, a link, or a folder with all that it contains if ``recursive``."""
        names = self._names(path)
        parent = self._open_folder("/".join(names[:-1]))
        try:
            status = _status(parent, names[-1])
            if status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(names[-1], dir_fd=parent)
            elif recursive:
                remove_tree(parent, names[-1])
            else:
                os.rmdir(names[-1], dir_fd=parent)
        except OSError as error:
            raise _explained(error, path) from error
        finally:
            os.close(parent)

    def entries(
        self, path: str = ROOT, *, recursive: bool = False, skipped: Collection[str] = ()
    ) -> Generator[FileEntry, None, None]:
        """Yield what a folder contains, sorted by name, each folder before what is in it.

        Links are not followed. Close the generator if you leave it early.

        Args:
            path: The folder.
            recursive: Whether folders in it are listed as well, up to ``MAX_DEPTH`` levels.
            skipped: Names of folders that are not listed themselves.
        """
        prefix = "/".join(components(path))
        handles = [self._open_folder(path)]
        try:
            pending = [iter(_sorted_entries(handles[0]))]
            names = [prefix] if prefix else []
            depth = len(names)
            while pending:
                entry = next(pending[-1], None)
                if entry is None:
                    pending.pop()
                    os.close(handles.pop())
                    del names[depth + len(pending) - 1 :]
                    continue
                name, status = entry
                yield _entry("/".join([*names, _shown(name)]), status)
                is_open = recursive and stat.S_ISDIR(status.st_mode) and name not in skipped
                if is_open and len(handles) < MAX_DEPTH:
                    with contextlib.suppress(OSError):  # it has changed, or may not be read
                        handles.append(os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=handles[-1]))
                        pending.append(iter(_sorted_entries(handles[-1])))
                        names.append(_shown(name))
        finally:
            for handle in handles:
                os.close(handle)

    def _open_folder(self, path: str) -> int:
        try:
            return open_beneath(self._handle, path, FOLDER)
        except OSError as error:
            raise _explained(error, path) from error

    def _make_folders(self, names: list[str]) -> int:
        """Open a folder, and make it and those above it if they are missing."""
        path = "/".join(names)
        try:
            return self._open_folder(path)
        except FileNotFoundError:
            parent = self._make_folders(names[:-1])
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(names[-1], dir_fd=parent)
        finally:
            os.close(parent)
        return self._open_folder(path)

    def _names(self, path: str) -> list[str]:
        names = components(path)
        if not names or names[-1] == "..":
            raise refusal("It is a folder, not a file", path)
        return names


def refusal(reason: str, path: str) -> OSError:
    """Return the error of a path that is there and is not used."""
    return OSError(errno.EPERM, reason, path)


def _explained(error: OSError, path: str) -> OSError:
    """Return the error with a text for people."""
    texts = {
        errno.EXDEV: "It leads out of the folder",
        errno.ELOOP: "It leads through too many links",
        errno.ENXIO: "It is a socket or a device, not a file",
        errno.EISDIR: "It is a folder, not a file",
        errno.ENOTDIR: "A part of the path is a file, not a folder",
        errno.ENOTEMPTY: "The folder is not empty",
        errno.EAGAIN: "Another program holds it",
    }
    number = error.errno or errno.EIO
    if number == errno.ENOTDIR:
        return NotADirectoryError(number, texts[number], path)
    return OSError(number, texts.get(number, error.strerror), path)


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _kind_text(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "something else")


def _replace(folder: int, name: str, parts: Iterable[bytes], mode: int, *, keep_mode: bool) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            if keep_mode:
                os.fchmod(handle, mode)
            file.writelines(parts)
            file.flush()
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _sorted_entries(folder: int) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it is gone
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            if len(found) >= _SORTED_ENTRIES:
                break
    found.sort()
    return found


def _entry(path: str, status: os.stat_result) -> FileEntry:
    kind: Kind = "other"
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(status.st_mode):
        kind = "link"
    return FileEntry(path, kind, status.st_size if kind == "file" else 0, status.st_mtime_ns)


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")
