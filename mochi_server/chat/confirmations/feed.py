"""What happens to confirmations, for readers that may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ...core.caller import Caller, current_caller
from ...core.feed import Feed, FeedReader
from .confirmation import ConfirmationChange
from .store import ConfirmationStore


class ConfirmationFeed(Feed[ConfirmationChange]):
    """Opens readers of what happens to confirmations, in every process, from now on."""

    def __init__(self, store: ConfirmationStore) -> None:
        super().__init__()
        self._store = store

    async def reader(self, session_id: str | None = None) -> FeedReader[ConfirmationChange]:
        """Return a new reader; call its ``leave()`` when done.

        Args:
            session_id: The session whose confirmations are read; None: those of all.

        Raises:
            ConfirmationUnavailable: the store cannot be reached.
        """
        reader = FeedReader(self._readers)
        caller = current_caller()
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reader.task = self._tasks.spawn(
            self._read(reader, began, session_id, caller), name="a feed of confirmations"
        )

        def never_began(_: asyncio.Task[None]) -> None:
            if not began.done():
                began.set_result(None)

        reader.task.add_done_callback(never_began)
        try:
            await began
        except BaseException:
            reader.leave()
            raise
        if self._closed:
            reader.end()
        return reader

    async def _read(
        self,
        reader: FeedReader[ConfirmationChange],
        began: asyncio.Future[None],
        session_id: str | None,
        caller: Caller,
    ) -> None:
        try:
            async with self._store.watch() as changes:
                if not began.done():
                    began.set_result(None)
                await _copy(changes, reader, session_id, caller)
        except Exception as error:
            if began.done():
                raise
            began.set_exception(error)
        finally:
            reader.end()


async def _copy(
    changes: AsyncIterator[ConfirmationChange],
    reader: FeedReader[ConfirmationChange],
    session_id: str | None,
    caller: Caller,
) -> None:
    async for change in changes:
        confirmation = change.confirmation
        is_wanted = session_id in (None, confirmation.session_id)
        if is_wanted and caller.sees(confirmation.owner) and not reader.add(change):
            return
