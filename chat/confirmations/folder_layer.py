"""A channel layer on a folder, for server processes that share their data on one machine.

A channel is a folder below ``folder``. The process that receives makes it, and holds a lock on its
file ``owner`` as long as the channel exists: a channel without the lock is of a dead process.
A message is a file in it, written in one step.

The layer has what the server needs: messages of JSON, channels made by ``new_channel``; no groups.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from mochi_server.core.aio import in_thread_to_completion
from mochi_server.core.files import make_folder
from mochi_server.core.leases import FileLock, is_locked

OWNER = "owner"
SUFFIX = ".json"
NEW = ".new-"
"""Prefix of a channel's folder until its lock is taken, and while it is removed."""

SETTLED_SECONDS = 2.0
"""Time after a change in which another change may leave the folder's timestamp as it is."""

STALE_SECONDS = 60.0
"""Age from which an unfinished channel is what a crash has left."""

REMOVALS = 20
"""Most attempts to remove a folder: a file may still be written to it under its old name."""

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The channel has no receiver, and will have none."""


class FolderChannelLayer(BaseChannelLayer):  # type: ignore[misc] # channels has no types
    """Channels as folders, messages as files.

    A receiver polls the timestamp of its folder while it waits. A channel ends when its ``receive``
    is cancelled, and only then: a folder that somebody removes is made again.
    """

    extensions = ("flush",)

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        poll: float = 0.025,
        expiry: float = 60,
        capacity: int = 10_000,
    ) -> None:
        """Make no folder yet; the first channel does.

        Args:
            folder: Where the channels are; readable by its owner only.
            poll: Seconds between two checks of a receiver.
            expiry: Seconds after which a message that nobody took is dropped.
            capacity: Most messages that a channel holds.
        """
        super().__init__(expiry=expiry, capacity=capacity)
        self.folder = Path(folder)
        self.poll = poll
        self._owned: dict[str, _OwnChannel] = {}

    async def new_channel(self, prefix: str = "specific.") -> str:
        name = f"{prefix}{uuid.uuid4().hex}"
        self.require_valid_channel_name(name)
        made: list[_OwnChannel] = []
        try:
            await in_thread_to_completion(_open, self.folder / name, made)
        except BaseException:
            for owned in made:
                owned.end()
            raise
        self._owned[name] = made[0]
        return name

    async def send(self, channel: str, message: Message) -> None:
        """Put a message of JSON into the channel.

        Raises:
            ChannelClosed: Its process has ended, or never existed.
            ChannelFull: It holds as many messages as it may.
        """
        self.require_valid_channel_name(channel)
        content = orjson.dumps(message)
        await in_thread_to_completion(_put, self.folder / channel, content, self.capacity)

    async def receive(self, channel: str) -> Message:
        """Wait for the next message of a channel of this process; messages come oldest first.

        Raises:
            ChannelClosed: It has ended, or belongs to another process.
            OSError: Its folder cannot be read now; the channel exists all the same.
        """
        owned = self._owned.get(channel)
        if owned is None:
            raise ChannelClosed(channel)
        try:
            while not owned.messages:
                if owned.may_have_changed():
                    await in_thread_to_completion(owned.take_all, self.expiry)
                if not owned.messages:
                    await asyncio.sleep(self.poll)
        except (asyncio.CancelledError, GeneratorExit):
            self._drop(channel)
            raise
        return owned.messages.popleft()

    async def flush(self) -> None:
        for channel in list(self._owned):
            self._drop(channel)

    def _drop(self, channel: str) -> None:
        """End a channel without a pause: a cancelled task may get no other chance."""
        if (owned := self._owned.pop(channel, None)) is not None:
            owned.end()


class _OwnChannel:
    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self.lock = lock
        self.messages: deque[Message] = deque()
        self._seen: int | None = None

    def end(self) -> None:
        """Remove the folder; under another name first, so that nothing more is written to it."""
        gone = self.path.with_name(f"{NEW}{uuid.uuid4().hex}")
        with suppress(OSError):
            self.path.rename(gone)
        for _ in range(REMOVALS):
            shutil.rmtree(gone, ignore_errors=True)
            if not gone.exists():
                break
        self.lock.release()

    def may_have_changed(self) -> bool:
        """Return whether the folder may have new messages.

        One ``stat``, which the system answers from memory: a thread would cost ten times as much.
        """
        try:
            changed = os.stat(self.path).st_mtime_ns  # noqa: PTH116 - many times a second
        except OSError:
            return True
        if changed == self._seen:
            return False
        if time.time() - changed / 1e9 > SETTLED_SECONDS:
            self._seen = changed
        return True

    def take_all(self, expiry: float) -> None:
        """Take every message out of the folder, oldest first; blocks."""
        try:
            names = sorted(os.listdir(self.path))  # noqa: PTH208 - of one channel
        except FileNotFoundError:
            names = []
        if OWNER not in names:
            self._make_again()
            return
        oldest = time.time_ns() - int(expiry * 1e9)
        for name in names:
            if name.endswith(SUFFIX):
                content = (self.path / name).read_bytes()
                (self.path / name).unlink()
                if int(name.partition("-")[0]) >= oldest:
                    self.messages.append(orjson.loads(content))

    def _make_again(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        lock = _make(self.path)
        self.lock.release()
        self.lock = lock


def _open(path: Path, made: list[_OwnChannel]) -> None:
    """Make a channel and put it into the list, also if the caller was cancelled meanwhile."""
    made.append(_OwnChannel(path, _make(path)))
    _sweep(path.parent)


def _make(path: Path) -> FileLock:
    """Make the folder of a channel; it gets its name when it has its lock."""
    make_folder(path.parent, private=True)
    new = path.with_name(f"{NEW}{path.name}")
    shutil.rmtree(new, ignore_errors=True)  # of an attempt that failed
    new.mkdir(mode=0o700)
    lock = FileLock.create(new / OWNER)
    try:
        new.rename(path)
    except BaseException:
        lock.release()
        raise
    return lock


def _sweep(folder: Path) -> None:
    """Remove what processes that have died left behind."""
    for path in abandoned_channels(folder):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f"{NEW}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def abandoned_channels(folder: Path) -> list[Path]:
    """Return the channels whose processes have died; blocks."""
    with suppress(OSError):
        return sorted(
            path
            for path in folder.iterdir()
            if not path.name.startswith(NEW) and not _has_owner(path)
        )
    return []


def _has_owner(path: Path) -> bool:
    try:
        return is_locked(path / OWNER)
    except OSError:
        return False


def _put(path: Path, content: bytes, capacity: int) -> None:
    if not _has_owner(path):
        raise ChannelClosed(path.name)
    try:
        if len(os.listdir(path)) > capacity:  # noqa: PTH208 - only their number
            raise ChannelFull
        _write(path, content)
    except FileNotFoundError as error:  # its end came in between
        raise ChannelClosed(path.name) from error


def _write(path: Path, content: bytes) -> None:
    name = f"{time.time_ns():020d}-{random.getrandbits(32):08x}"
    temporary = path / f"{name}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
        temporary.rename(path / f"{name}{SUFFIX}")
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
