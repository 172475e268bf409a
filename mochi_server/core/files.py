"""Blocking work with the user's files: for a thread, never for the event loop."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import random
import resource
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

PLAIN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of ``open`` that follow no link and do not wait for a pipe."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

NOT_PLAIN = frozenset({errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""Error numbers of ``open`` with ``PLAIN`` for no file, a link, a folder or a socket."""

PRIVATE_FILE = 0o600
"""Mode of a new file that holds conversations."""

_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})
"""Error numbers of file systems that cannot flush a folder."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Error numbers of file systems without hard links."""

MAX_FILES = 1_048_576
"""Highest limit: some programs close every number up to the limit."""

_FEWER_FILES = (65_536, 10_240)


def max_files(hard: int) -> int:
    """Return how many files the server may open under a hard limit."""
    return MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as the system allows.

    An open stream holds three (the client, the model, the session's claim), and 1,024 is the usual
    limit of a shell.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    most = max_files(hard)
    for limit in (most, *_FEWER_FILES):
        if not soft < limit <= most:
            continue
        # macOS names no limit, and accepts no more than it has.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


def read_plain(path: Path, limit: int = -1) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, at most ``limit`` bytes, and its status.

    Raises:
        OSError: It cannot be read; with a number of ``NOT_PLAIN`` if it is no regular file.
    """
    handle = os.open(path, PLAIN)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a plain file", os.fspath(path))
        with open(handle, "rb", closefd=False) as file:
            return file.read(limit), status
    finally:
        os.close(handle)


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


class NotUTF8(ValueError):
    """A file that a person has written is not UTF-8 text; the text says what it seems to be."""

    def __init__(self, encoding: str, line: int) -> None:
        super().__init__(f"it is not UTF-8 text, but {encoding}; save it as UTF-8")
        self.line = line
        """The first line that shows it, from 1."""


def text_of(content: bytes) -> str:
    """Return the text of a file that a person has written, without a byte order mark.

    Raises:
        NotUTF8: It has another encoding, or is no text.
    """
    if content.startswith(_UTF_32):
        raise NotUTF8("UTF-32", 1)
    if content.startswith(_UTF_16):
        raise NotUTF8("UTF-16", 1)
    if b"\0" in content:
        raise NotUTF8("UTF-16 or no text at all", _line_of(content, content.index(b"\0")))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = _line_of(content, error.start)
        raise NotUTF8("perhaps Windows-1252 or Latin-1", line) from error


def _line_of(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


def check_plain(path: Path) -> None:
    """Raise an OSError with a number of ``NOT_PLAIN`` unless there is a regular file."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileNotFoundError(errno.ENOENT, "not a plain file", os.fspath(path))


def replace_file(
    path: Path, parts: Iterable[bytes], *, new: bool = False, private: bool = False
) -> os.stat_result:
    """Write a file atomically and durably, and return its status; its folder is made if needed.

    The new file gets the mode of the file that it replaces and, where the system allows it, its
    owner and group; else the mode follows the umask and ``private``. A crash at any instant leaves
    the old or the new content, and perhaps ``.{stem}.{16 hexadecimal digits}.tmp`` beside it, which
    is locked while it is written.

    Args:
        path: Where to write.
        parts: The content.
        new: An existing file is an error.
        private: A new file and a new folder are readable by their owner alone.

    Raises:
        FileExistsError: There is a file, and ``new`` was set.
        OSError: The disk refused; the old content is still there.
    """
    temporary = path.parent / f".{path.stem}.{random.getrandbits(64):016x}.tmp"
    old = None if new else _status_of_plain(path)
    mode = stat.S_IMODE(old.st_mode) if old else (PRIVATE_FILE if private else 0o666)
    handle = _open_new(temporary, mode, private=private)
    with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            status = _write(temporary, file, parts, old)
            if new:
                _rename_unless_taken(temporary, path)
            else:
                temporary.replace(path)
            flush_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    return status


def _status_of_plain(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def _open_new(path: Path, mode: int, *, private: bool) -> int:
    """Open a new file and return its descriptor; its folder is made if needed."""
    try:
        return os.open(path, _NEW, mode)
    except FileNotFoundError:
        make_folder(path.parent, private=private)
        return os.open(path, _NEW, mode)


def _rename_unless_taken(temporary: Path, path: Path) -> None:
    """Give the file its name; FileExistsError if another file has it."""
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        temporary.unlink()
        return
    # A crash here leaves an empty file: such a disk allows nothing better.
    os.close(os.open(path, _NEW, 0o600))
    try:
        temporary.replace(path)
    except OSError:
        path.unlink()
        raise


@contextlib.contextmanager
def restored_on_failure(path: Path) -> Iterator[None]:
    """If what is done within fails, let a file be again what it was, or not be there.

    That needs no space on the disk. A kill leaves ``.{name}.kept``, which the next time removes.

    Raises:
        OSError: The file cannot be kept, or cannot be restored.
    """
    kept = path.with_name(f".{path.name}.kept")
    kept.unlink(missing_ok=True)
    if is_there := path.exists():
        try:
            kept.hardlink_to(path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copy2(path, kept)
    try:
        yield
    except BaseException:
        if is_there:
            kept.replace(path)
        else:
            path.unlink(missing_ok=True)
        flush_folder(path.parent)
        raise
    finally:
        with contextlib.suppress(OSError):
            kept.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made if needed; wait for it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        give_to_folder_owner(path, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a private file, which lies beside it; make its folder if that is missing."""
    make_folder(path.parent, private=True)
    with locked(path.with_name(f".{path.name}.lock")):
        yield


def _write(
    path: Path, file: BinaryIO, parts: Iterable[bytes], old: os.stat_result | None
) -> os.stat_result:
    handle = file.fileno()
    if old is None:
        give_to_folder_owner(path, handle)
    file.writelines(parts)
    file.flush()
    os.fsync(handle)
    status = os.fstat(handle)
    if old is not None and _access(status) != _access(old):
        _copy_access(handle, status, old)
    return status


def _access(status: os.stat_result) -> tuple[int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_gid, status.st_uid


def _copy_access(handle: int, status: os.stat_result, old: os.stat_result) -> None:
    """Set mode, owner and group of the old file; a group that cannot be set gets others' rights."""
    mode = stat.S_IMODE(old.st_mode)
    if status.st_uid != old.st_uid:
        with contextlib.suppress(OSError):  # only root may
            os.fchown(handle, old.st_uid, -1)
    if status.st_gid != old.st_gid:
        try:
            os.fchown(handle, -1, old.st_gid)
        except OSError:
            mode = (mode & ~0o070) | ((mode & 0o007) << 3)
    with contextlib.suppress(OSError):  # a file system without modes
        os.fchmod(handle, mode)


def give_to_folder_owner(path: Path, handle: int | None = None) -> None:
    """Give a file or folder that root has made to the owner of the folder around it.

    Else a command that root ran would keep a server that is not root from its own data. Of an open
    file ``handle`` is the descriptor.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        parent = path.parent.stat()
        if handle is None:
            os.chown(path, parent.st_uid, parent.st_gid, follow_symlinks=False)
            return
        status = os.fstat(handle)
        if status.st_uid == 0 and status.st_size == 0 and status.st_nlink == 1:  # it is new
            os.fchown(handle, parent.st_uid, parent.st_gid)


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and those above it, durably, each owned as the folder around it.

    Existing folders keep their modes; new ones are readable by their owner alone if ``private``.

    Raises:
        OSError: It cannot be made.
    """
    mode = 0o700 if private else 0o777
    try:
        path.mkdir(mode)
    except FileNotFoundError:
        make_folder(path.parent, private=private)
        path.mkdir(mode, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    give_to_folder_owner(path)
    with contextlib.suppress(PermissionError):  # a folder that may be written but not listed
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush a folder to disk; else a power cut may undo a rename that was reported as done."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)
