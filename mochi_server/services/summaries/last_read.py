"""The conversation that a model has read last, and so may still have in its cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...core.files import PRIVATE_FILE, hand_over, make_folder
from .schedule import digest_of

WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
SUFFIX = ".last"


class LastReadConversations:
    """The session that each model has read last, by the key of its weights.

    Args:
        folder: Folder shared by processes that use the same models, made when needed; None for one
            process alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sessions: dict[str, str] = {}

    def note(self, weights: str, session_id: str) -> None:
        if self._folder is None:
            self._sessions[weights] = session_id
            return
        path = self._path(self._folder, weights)
        with suppress(OSError):
            try:
                handle = os.open(path, WRITE, PRIVATE_FILE)
            except FileNotFoundError:
                make_folder(path.parent, private=True)
                handle = os.open(path, WRITE, PRIVATE_FILE)
            with open(handle, "w") as file:  # noqa: PTH123 - a descriptor
                hand_over(path, file.fileno())
                file.write(session_id)

    def forget(self, weights: str) -> None:
        if self._folder is None:
            self._sessions.pop(weights, None)
        else:
            with suppress(OSError):
                self._path(self._folder, weights).unlink()

    def session_of(self, weights: str) -> str | None:
        """Return the session's id; None if it is not known."""
        if self._folder is None:
            return self._sessions.get(weights)
        try:
            return self._path(self._folder, weights).read_text() or None
        except (OSError, UnicodeDecodeError):
            return None

    @staticmethod
    def _path(folder: Path, weights: str) -> Path:
        return folder / f"{digest_of(weights)}{SUFFIX}"
