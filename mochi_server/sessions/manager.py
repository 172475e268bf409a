"""Create, read, change, list and delete the sessions of a storage."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from ..core.aio import in_thread_if, run_to_completion
from ..core.caller import current_caller, may_see
from ..core.ids import new_session_id
from ..core.space import SpaceLimit, room_of
from ..errors import MochiError, SessionBusy, SessionExists, SessionNotFound, SessionUnreadable
from ..protocol.messages import Message, now
from ..protocol.options import NO_OPTIONS, ModelOptions
from .catalogue.catalogue import SessionCatalogue
from .catalogue.listing import ALL, ListQuery, SessionFilter, SessionPage, WholeList, read_tags
from .codec import Document, assemble
from .documents import SessionDocuments
from .messages import MANY_MESSAGES, encode_messages
from .session import ChatSession
from .storage.base import SessionChanged, SessionStorage
from .storage.json_files import JSONFileStorage
from .storage.memory import MemoryStorage
from .types import AgentSettings, ContextWindowConfig, SessionMetadata, ToolSettings

CACHE_BYTES = 32 * 1024 * 1024


class SessionManager:
    """The sessions of a folder or of another storage. Usable from one event loop after another.

    ``SessionManager(sessions_dir="chats")`` is short for
    ``SessionManager(JSONFileStorage("chats"))``.
    """

    def __init__(
        self,
        storage: SessionStorage | None = None,
        *,
        sessions_dir: str | os.PathLike[str] | None = None,
        catalogue_path: Path | None = None,
        cache_bytes: int = CACHE_BYTES,
        sweep_seconds: float = 2.0,
    ) -> None:
        """Take exactly one of ``storage`` and ``sessions_dir``.

        Args:
            storage: where the files are.
            sessions_dir: the folder of the files.
            cache_bytes: memory for the files used last, about.
            catalogue_path: the file of the catalogue, by which processes that share the sessions
                list them fast; it may be deleted at any time. None: a catalogue in memory.
            sweep_seconds: after which time a list notices what a text editor changed in place.

        Raises:
            ValueError: both, or neither.
        """
        if (storage is None) == (sessions_dir is None):
            raise ValueError("Give either a storage or sessions_dir.")
        self.storage = storage or JSONFileStorage(sessions_dir or ".")
        self._whole_list = WholeList()
        self.settle_run: Callable[[str, str | None], Awaitable[None]] | None = None
        """Called with a claimed session's id and that of its last run, before it is changed: makes
        sure that the run is over, or raises SessionBusy."""
        self.check_run_left: Callable[[str, str | None], Awaitable[None]] | None = None
        """Called with the same before a claim is taken that was not given back: raises SessionBusy
        if a process still executes the run."""
        self.storage.check_lapsed = self._check_lapsed
        self.space: SpaceLimit | None = None
        """Of what each owner may keep."""
        self.on_deleted: list[Callable[[str], Awaitable[None]]] = []
        """Called in order with the id of a deleted session, before a turn of another can begin."""
        path = None if isinstance(self.storage, MemoryStorage) else catalogue_path
        self.catalogue = SessionCatalogue(self.storage, path, sweep_seconds=sweep_seconds)
        self._documents = SessionDocuments(self.storage, self.catalogue, cache_bytes)

    def __repr__(self) -> str:
        return f"SessionManager({self.storage!r})"

    async def create(
        self,
        model: str,
        *,
        system_prompt: str | None = None,
        source_file: str | None = None,
        tool_settings: ToolSettings | None = None,
        agent_settings: AgentSettings | None = None,
        session_id: str | None = None,
        labels: Mapping[str, JsonValue] | None = None,
        options: ModelOptions = NO_OPTIONS,
        prepare: Callable[[ChatSession], None] | None = None,
    ) -> ChatSession:
        """Store a new session and return it.

        Args:
            model: the full name of its model.
            system_prompt: its first message.
            source_file: the name of the file that the system prompt is from.
            tool_settings: which tools it offers.
            agent_settings: which agents it may call.
            session_id: by default ten random hexadecimal digits.
            labels: ``title``, ``tags``, ``pinned``, ``archived``.
            options: options of its model.
            prepare: changes the session before it is stored, as first messages and own keys of
                the metadata do, so that it is complete after one write. It is called again when a
                new id happens to be taken.

        Raises:
            SessionExists: the id is taken.
            SessionNotFound: the id is malformed.
            SpaceUsedUp: the caller has no room for it.
            StorageError: it could not be written.
        """
        while True:
            time = now()
            metadata = SessionMetadata(
                session_id=session_id or new_session_id(),
                model=model,
                created_at=time,
                updated_at=time,
                tool_settings=tool_settings,
                agent_settings=agent_settings,
                context_window_config=ContextWindowConfig(),
            )
            metadata.label(**(labels or {}))
            metadata.options = options
            session = ChatSession(metadata)
            if system_prompt is not None:
                session.set_system_prompt(system_prompt, source_file)
            if prepare is not None:
                prepare(session)
            session.metadata.owner = current_caller().owner
            write = partial(self.storage.create, session.session_id)
            try:
                await self.take_space(room_of(sum(map(len, assemble(session.document())))))
                await run_to_completion(self._documents.write(session, write))
            except SessionExists:
                if session_id is not None:
                    if await self._is_hidden(session_id):
                        raise SessionNotFound(session_id=session_id) from None
                    raise
            else:
                return session

    async def take_space(self, size: int) -> None:
        """Make sure that the caller may keep so many bytes more, and count them.

        Raises:
            SpaceUsedUp: there is no room.
            StorageError: that is not known.
        """
        if self.space is not None:
            await self.space.take(size, current_caller().owner)

    async def take_space_for(self, messages: Sequence[Message]) -> None:
        """Count what messages will take, with calls and thinking. Raises as ``take_space``."""
        lines = await in_thread_if(len(messages) > MANY_MESSAGES, encode_messages, messages)
        await self.take_space(sum(map(len, lines)))

    async def total_size(self, session_ids: Set[str]) -> int:
        """Return how many bytes of a disk these sessions take, a file each."""
        entries = await self.storage.entries()
        return sum(room_of(entry.size) for entry in entries if entry.session_id in session_ids)

    async def _is_hidden(self, session_id: str) -> bool:
        """Return whether a session is there that the caller does not see."""
        if current_caller().owner is None:
            return False
        try:
            await self._load(session_id, None)
        except SessionNotFound:
            with suppress(SessionNotFound):  # it is just being created
                await self.storage.version(session_id)
                return True
        return False

    async def get(self, session_id: str) -> ChatSession:
        """Return the session as it is stored now; changes to it stay in memory.

        Raises:
            SessionNotFound: there is none.
            SessionUnreadable: its file is no session; it was left as it is.
            StorageError: its file cannot be read.
        """
        return await self._load(session_id, None)

    async def check_exists(self, session_id: str) -> None:
        """Check that a session exists that the caller sees.

        Its file, which may be long, is read only where sessions belong to tokens.

        Raises:
            SessionNotFound: there is none.
        """
        if current_caller().owner is None:
            await self.storage.version(session_id)
        else:
            await self._load(session_id, None)

    async def _load(self, session_id: str, version: tuple[int, ...] | None) -> ChatSession:
        """Read a session; a version that was read just now saves a request to the storage."""
        try:
            return _seen(await self._documents.read(session_id, version), session_id)
        except SessionUnreadable:
            if current_caller().owner is None:
                raise
            raise SessionNotFound(session_id=session_id) from None  # nobody knows whose it is

    @asynccontextmanager
    async def edit(self, session_id: str, *, exclusive: bool = False) -> AsyncIterator[ChatSession]:
        """Open a session for a change, and save it at the end.

        It is not saved after an exception, or when nothing changed. Other edits of the session wait
        meanwhile, in all processes: keep it short. A cancellation during the save takes effect
        after it. ``exclusive``: a run prevents the change; set it to change messages.

        Raises:
            SessionBusy: ``exclusive``, and a run goes on or waits for a person; or the edit took
                so long that the session was not locked any more, and another has changed it.
            SessionNotFound: there is none.
            SessionUnreadable: its file is no session; it was left as it is.
            StorageError: its file cannot be read or written.
        """
        async with AsyncExitStack() as held:
            if exclusive:
                await held.enter_async_context(self._exclusively(session_id))
            try:
                async with self._edit(session_id) as session:
                    yield session
            except SessionChanged:
                text = f"Session {session_id!r} was changed meanwhile. Try again."
                raise SessionBusy(text, details={"session_id": session_id}) from None

    @asynccontextmanager
    async def _edit(self, session_id: str) -> AsyncIterator[ChatSession]:
        async with self.storage.lock(session_id) as hold:
            session = await self._load(session_id, hold.version)
            yield session
            if session.changed:
                session.touch()
                await run_to_completion(self._documents.write(session, hold.write))

    async def update(self, session_id: str, change: Callable[[ChatSession], None]) -> ChatSession:
        """Make a change that may be repeated, and return the session as it was saved.

        It is made on the last known version of the session. If the session has changed since then,
        which is checked under the lock, it is made again by ``edit``.

        Raises:
            MochiError: what ``edit`` raises, and what the change raises on the present session.
        """
        if (known := self._documents.known(session_id)) is not None:
            session = _seen(known[1], session_id)
            write = partial(self.storage.replace, session_id, known[0])
            try:
                change(session)
            except MochiError:
                pass  # the present session may allow it
            else:
                if session.changed:
                    session.touch()
                    # What a server gave no answer to is not made again: it may have been done.
                    with suppress(SessionChanged):
                        await run_to_completion(self._documents.write(session, write))
                        return session
        while True:
            with suppress(SessionChanged):  # the lock was over
                async with self._edit(session_id) as session:
                    change(session)
                return session

    @asynccontextmanager
    async def claim(self, session_id: str) -> AsyncIterator[ChatSession]:
        """Reserve the session for one turn, against other turns in all processes, and yield it.

        Raises:
            SessionBusy: another turn is running.
            SessionNotFound: there is none.
            SessionUnreadable: its file is no session; it was left as it is.
        """
        if current_caller().owner is not None:  # that another's session is busy is not told
            await self.check_exists(session_id)
        async with self.storage.claim(session_id) as version:
            if version is None:
                raise SessionNotFound(session_id=session_id)
            yield await self._load(session_id, version)

    async def _check_lapsed(self, session_id: str) -> None:
        """Leave a claim to its process, which may have stood still, as long as its run goes on."""
        if self.check_run_left is not None:
            with suppress(SessionNotFound, SessionUnreadable):
                run_id = (await self.get(session_id)).metadata.last_run_id
                await self.check_run_left(session_id, run_id)

    async def check_run(self, session: ChatSession) -> None:
        """Make sure that the last run of a claimed session is over.

        Raises:
            SessionBusy: it waits for a person.
            StorageError: its process has died, and the session cannot be written.
        """
        if self.settle_run is not None:
            await self.settle_run(session.session_id, session.metadata.last_run_id)

    async def delete(
        self, session_id: str, *, only_if: Callable[[ChatSession], bool] | None = None
    ) -> bool:
        """Delete the session, and return whether it was deleted.

        ``only_if`` is called while the session is locked; False keeps the session.

        Raises:
            SessionBusy: a run goes on or waits for a person.
            SessionNotFound: there is none.
            SessionUnreadable: ``only_if`` cannot be called, for its file is no session.
        """
        async with self._exclusively(session_id):
            async with self.storage.lock(session_id):
                if only_if is not None and not only_if(await self.get(session_id)):
                    return False
                await run_to_completion(self._documents.delete(session_id))
            await run_to_completion(self._remove_belongings(session_id))
        return True

    async def _remove_belongings(self, session_id: str) -> None:
        for each in self.on_deleted:
            await each(session_id)
        if self.space is not None:
            self.space.measure_again()

    @asynccontextmanager
    async def _exclusively(self, session_id: str) -> AsyncIterator[None]:
        await self.check_exists(session_id)
        async with self.storage.claim(session_id) as version:
            with suppress(SessionUnreadable, SessionNotFound):
                await self.check_run(await self._load(session_id, version))
            yield

    async def list(
        self,
        limit: int | None = None,
        cursor: str | None = None,
        session_filter: SessionFilter = ALL,
    ) -> SessionPage:
        """Return the sessions that the filter selects, the one changed last first; all, or a page.

        Raises:
            InvalidRequest: the limit is below one, or the cursor is none of this list.
            StorageError: the folder cannot be listed.
        """
        return await self.catalogue.read(ListQuery(limit, cursor, session_filter.for_caller()).page)

    async def list_json(
        self,
        limit: int | None = None,
        cursor: str | None = None,
        session_filter: SessionFilter = ALL,
    ) -> bytes:
        """Return what ``list`` returns, and fails with, as the JSON of ``GET /sessions``."""
        seen = session_filter.for_caller()
        if limit is None and cursor is None and seen == ALL:
            return await self.catalogue.read(self._whole_list.json)
        return await self.catalogue.read(ListQuery(limit, cursor, seen).json)

    async def tags_json(self, session_filter: SessionFilter = ALL) -> bytes:
        """Return the tags of the sessions that the filter selects, as the JSON of ``GET /tags``.

        Raises:
            StorageError: the folder cannot be listed.
        """
        seen = session_filter.for_caller()
        return await self.catalogue.read(partial(read_tags, session_filter=seen))

    async def aclose(self) -> None:
        """Close the catalogue and the storage."""
        await self.catalogue.aclose()
        await self.storage.aclose()


def _seen(document: Document, session_id: str) -> ChatSession:
    """Return the session of a document.

    Raises:
        SessionNotFound: it belongs to somebody else than the caller.
    """
    session = ChatSession.from_document(document, session_id)
    if not may_see(session.metadata.owner):
        raise SessionNotFound(session_id=session_id)
    return session
