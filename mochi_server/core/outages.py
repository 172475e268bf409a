"""Waiting for a server that is away, for as long as a restart of it may take."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from ..errors import StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

OUTAGE_SECONDS = 3.0
"""Time after a first failure for which work is repeated."""

_PAUSE: Final = 0.2

LOG_SECONDS: Final = 30.0
"""Shortest time between two lines of the log that tell of failures."""

Errors = tuple[type[Exception], ...]


class OutageRetry:
    """Repeats what a server that has just gone away could not do.

    While it stays away everything fails at once.
    """

    def __init__(self, server: str, errors: Errors, *, transient: Errors) -> None:
        """Wait for nothing yet.

        Args:
            server: What it is called in messages, such as "The Redis of the sessions".
            errors: What an attempt may raise.
            transient: Those of them that a restart of the server is the reason for.
        """
        self._server = server
        self._errors = errors
        self._transient = transient
        self._failed_at: float | None = None
        """When the first of the failures was since which nothing has succeeded."""
        self._logged_at = -math.inf
        """When the log was last told of a failure."""
        self._is_logged = False
        """Whether it says that the server cannot be used."""

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt something; it may be done twice if an answer is lost.

        Raises:
            StorageUnavailable: the server is away.
            StorageError: it refuses, for example since it is full.
        """
        since = math.inf
        while True:
            try:
                result = await attempt()
            except self._errors as error:
                # What others can do meanwhile, such as read a full disk, gives this no more time.
                since = min(since, self._note_failure(error))
                is_over = time.monotonic() - since > OUTAGE_SECONDS
                if is_over or not isinstance(error, self._transient):
                    raise StorageError.because(error, self._text(error)) from error
            else:
                self._failed_at = None
                if self._is_logged:
                    self._is_logged = False
                    logger.warning("%s answers again.", self._server)
                return result
            await anyio.sleep(_PAUSE)

    def _note_failure(self, error: Exception) -> float:
        """Return when the first of the failures was; tell the log, unless it was told just now.

        A server that is full, for example, refuses every write, and answers the reads in between.
        """
        now = time.monotonic()
        if not self._is_logged and now - self._logged_at > LOG_SECONDS:
            self._logged_at, self._is_logged = now, True
            logger.warning(self._text(error))
        if self._failed_at is None:
            self._failed_at = now
        return self._failed_at

    def _text(self, error: Exception) -> str:
        return f"{self._server} cannot be used: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """Return what is wrong; drivers add lines with advice."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
