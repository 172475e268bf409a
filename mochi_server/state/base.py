"""What a state is, whichever engine has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from .statements import Statements, Version

T = TypeVar("T")


class State(ABC):
    """Rows and lines that processes share, or of one process, and who of them lives.

    Every method raises StorageError when the disk or the database refuses, or is away.
    """

    look_seconds: float
    """Seconds between two looks at the version, for those who wait for others."""

    lease_seconds: float | None = None
    """Time without a renewal after which others may take a holder for dead; None: it is dead when
    its process is, and only then."""

    async def version(self) -> Version:
        """Return the version alone."""
        return await self.read(Statements.version, is_small=True)

    @abstractmethod
    async def read(self, work: Callable[[Statements], T], *, is_small: bool = False) -> T:
        """Return what the work reads of one state, in a thread.

        Where this costs microseconds and waits for nobody, small work is done in the event loop.
        """

    @abstractmethod
    async def write(self, work: Callable[[Statements], T]) -> T:
        """Do the work in a thread, as a whole or not at all, also where the caller is cancelled.

        It may be done twice, as when the answer of a database is lost.
        """

    @abstractmethod
    def write_at_once(self, work: Callable[[Statements], T]) -> tuple[T] | None:
        """Do small work in the event loop, if it waits for nobody there; None: it is not done."""

    @abstractmethod
    def hold(self) -> str:
        """Return the name under which this process holds something, until ``release``.

        To be called before each use, as what says so may have been deleted; where there are leases,
        ``Statements.renew`` begins one.
        """

    @abstractmethod
    async def release(self) -> None:
        """Hold nothing any more; the next time it is under another name."""

    @abstractmethod
    async def prune(self) -> None:
        """Remove what dead holders have left."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what is open; the next use opens it again."""
